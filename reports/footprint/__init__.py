"""How much memory, and how sure?"""
