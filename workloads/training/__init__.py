"""How is a model built and one step of it trained?

Runs one step. It does not time it, and it does not train to an accuracy.
"""
