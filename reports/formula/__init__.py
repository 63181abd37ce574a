"""What does a model cost, as formulas?"""
