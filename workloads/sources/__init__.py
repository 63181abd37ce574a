"""Models that others made, by where they come from.

Builds what others defined, with random weights where weights would have to be downloaded.
"""
