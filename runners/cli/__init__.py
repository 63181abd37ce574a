"""What do all commands share on the command line?"""
