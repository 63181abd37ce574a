"""The commands: they parse, call, print and exit, and nobody else does.

Commands: they parse, call, print and choose an exit code.
"""
