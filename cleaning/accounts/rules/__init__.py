"""How does each counter count, as a rule over what the model called?"""
