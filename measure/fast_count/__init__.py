"""How many FLOP, from one forward pass on meta tensors?"""
