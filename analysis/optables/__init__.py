"""How is a table of operations written and transformed without a model?

Builds and edits tables for analysis. No table from here was executed.
"""
