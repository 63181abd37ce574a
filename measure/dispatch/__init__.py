"""What does the dispatcher say about one call of an operator?

Reads the schemas of operators. It does not know costs.
"""
