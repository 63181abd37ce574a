"""The commands: they parse, call, print and choose an exit code, and no other package does."""
