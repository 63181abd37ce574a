"""How is a user's model run, and left as it was?

Restores parameters, buffers, modes, hooks and random numbers. State that a model keeps elsewhere is not restored.
"""
