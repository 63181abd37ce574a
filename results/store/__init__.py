"""Stores and reads rows: append-only, committed, checked.

Keeps rows safe from crashes and detects accidental edits. It does not protect against someone who recomputes the
checksums.
"""
