"""What fraction of a peak does training reach?

Divides what was measured by peaks with a source. Where a numerator or denominator is unknown, the ratio is unknown.
"""
