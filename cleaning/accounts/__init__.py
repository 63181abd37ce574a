"""Why is a counter's number not the exact count?

Explains counters by their rules. A difference that no rule explains is shown as unexplained.
"""
