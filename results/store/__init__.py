"""Stores and reads rows: append-only, committed, checked.

Keeps rows safe from crashes and detects accidental edits. It is no protection against someone who recomputes the
checksums.
"""
