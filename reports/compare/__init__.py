"""Do two runs differ?

Says whether two runs differ, and not why.
"""
