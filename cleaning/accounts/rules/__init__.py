"""How does each counter count, as a rule over what the model called?

Each rule describes the versions of a counter that were tested (`constraints.txt`). Another version may count
differently, and then its account does not add up.
"""
