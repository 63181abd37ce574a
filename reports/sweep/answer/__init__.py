"""What did a sweep find?"""
