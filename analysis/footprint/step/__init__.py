"""How much memory does a step need, and which batch fits?"""
