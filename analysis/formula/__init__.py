"""Derives a model's costs as formulas.

Exact where a formula was verified at further points. A model whose operations change with its sizes has no formula.
"""
