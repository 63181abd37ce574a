"""What follows from a paper's printed inputs, beside its printed results?

Recomputes printed results from printed inputs. It does not judge the inputs.
"""
