"""Computes what fraction of a peak training reaches.

Divides measurements by peaks with a source. Where a numerator or denominator is unknown, the ratio is unknown.
"""
