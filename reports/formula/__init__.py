"""What does a model cost, as formulas?

Shows formulas exactly. Only their values at points are rounded.
"""
