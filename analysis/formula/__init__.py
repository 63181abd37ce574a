"""What does a model cost, as a formula?

Exact where a formula was verified at further points. A model whose operations change with its sizes has no formula.
"""
