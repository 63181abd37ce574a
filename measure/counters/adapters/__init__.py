"""How is each FLOP counter called, and what does it return?

Each adapter calls a counter as its documentation does and keeps its number unchanged.
"""
