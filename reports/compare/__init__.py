"""Do two runs differ, cell by cell, and may one replace the other?

It says whether two runs differ, and not why.
"""
