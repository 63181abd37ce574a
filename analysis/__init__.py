"""What numbers mean: formulas, peaks, statistics, utilization. Pure functions."""
