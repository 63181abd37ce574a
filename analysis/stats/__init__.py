"""What is a noisy number worth, and do two of them differ?

Intervals cover noise within the blocks that were measured. They say nothing of differences between machines, or
between days.
"""
