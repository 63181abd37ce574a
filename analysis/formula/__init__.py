"""Derives a model's costs as formulas.

Each formula was verified at points that it was not fitted to. If the operations change with a size in a way that no
polynomial follows, there is no formula in it.
"""
