"""What do all commands share on the command line?

Shared by all commands. It knows no command.
"""
