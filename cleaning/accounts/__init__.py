"""Explains why a counter's number is not the exact count.

Explains counters by their rules. A difference that no rule explains is shown as unexplained.
"""
