"""How is each fault seen?

Minimal models that show one fault each. How common a fault is in practice is not shown.
"""
