"""How much memory does a step need, in which order of its operations?"""
