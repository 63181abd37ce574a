"""Statistics: how certain a noisy number is, and whether two of them differ.

Intervals cover noise within the blocks that were measured, not differences between machines or days.
"""
