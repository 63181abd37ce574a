"""How is a table of operations written and transformed without a model?"""
