"""Is this slower than that? Old and new are measured in turn, in processes of their own, in one session.

Does not say why, and not for another machine.
"""
