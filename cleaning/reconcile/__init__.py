"""Derives everything from a run's raw rows, and checks whether its sources agree.

Reports where sources disagree. It does not choose between them.
"""
