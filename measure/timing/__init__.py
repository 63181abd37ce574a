"""How long does a step take?

Times blocks of steps between synchronizations. `measure.profile` times single operations.
"""
