"""How much memory, and which batch fits?"""
