"""What did a sweep find: tables, page and figures?"""
