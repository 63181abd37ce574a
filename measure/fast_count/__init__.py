"""How many FLOP, from one forward pass on meta tensors?

Products only, predicted from the forward pass. `measure.operations` traces the whole step.
"""
