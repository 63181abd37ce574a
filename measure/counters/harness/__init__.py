"""How is a FLOP counter run, and what becomes of it?"""
