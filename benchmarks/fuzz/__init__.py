"""What does each parser do with damaged input? Random edits of files that we made, each read under limits.

Not claimed: that a parser without findings has no fault; the corpus decides which code is reached.
"""
