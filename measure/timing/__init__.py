"""How long does a step take?

Times whole blocks of steps between synchronizations. Times of single operations are in `measure.profile`.
"""
