"""The commands: they parse, call, print and exit, and nobody else does."""
