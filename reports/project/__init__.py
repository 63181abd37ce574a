"""What will training take?

Shows projections with the inputs that they depend on.
"""
