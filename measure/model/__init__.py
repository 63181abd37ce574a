"""How is somebody else's model run, and left as it was?

Restores the state that it knows of: parameters, buffers, modes, hooks and random numbers. State that a model keeps
elsewhere is not restored.
"""
