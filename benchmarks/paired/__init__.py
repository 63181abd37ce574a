"""Sweeps beside busy processes, comparisons of runs of equal steps, and intervals of windows of known noise."""
