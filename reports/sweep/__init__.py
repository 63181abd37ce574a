"""What did a sweep find: tables, page and figures?

Shows a run as it is on disk.
"""
