"""What does each FLOP counter say?

Each adapter calls a counter as its documentation does and keeps its number unchanged.
"""
