"""How far is each counter from the exact count, and why?

Shows each counter's own number beside the exact count, with what explains the difference.
"""
