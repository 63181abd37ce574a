"""How much memory, and how sure?

Shows predictions with their measured errors.
"""
