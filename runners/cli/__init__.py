"""What do all commands share on the command line?

Parsing, options of models, exit codes and output. It knows no command.
"""
