"""What numbers mean: formulas, peaks, statistics, utilization. Pure functions.

They need neither torch nor a device. A result is as good as the rows and tables that it was given.
"""
