"""Is this slower than that? The blocks of old and new are interleaved, in processes of their own, in one session.

Does not say why, and not for another machine.
"""
