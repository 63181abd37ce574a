"""Raw rows of a run in, everything derived of it out: do its sources agree?

Reports where sources disagree. It does not choose between them.
"""
