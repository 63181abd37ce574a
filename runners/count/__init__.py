"""How many FLOP, by every counter?"""
