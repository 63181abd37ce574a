"""Do two runs differ?"""
