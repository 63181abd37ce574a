"""What follows from a paper's printed inputs, beside its printed results?"""
