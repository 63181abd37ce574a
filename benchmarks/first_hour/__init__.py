"""Ten tasks of a new user, pasted from docs/first-hour.md into a fresh clone: does each run, and how long?"""
