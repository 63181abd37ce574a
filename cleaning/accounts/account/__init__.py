"""Why is a counter's number not the exact count?

A cause is listed only if its FLOP follow from the rule of the counter. The rest is shown as unexplained.
"""
