"""What does a profile file of any profiler hold?

Reads what the file holds. Nothing in a file is executed, and sizes are limited (`results.limits`).
"""
