"""How rows are kept and read: append-only, committed, checked

Keeps rows safe from crashes and finds edits by accident. It is no protection against someone who recomputes the
checksums.
"""
