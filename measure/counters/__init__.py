"""How is a FLOP counter run, and what becomes of its result?

Runs counters and keeps what they return. It does not correct them; `cleaning.accounts` explains them.
"""
