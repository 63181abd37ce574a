"""Decides whether a run may be published.

Finds contradictions within a run. Falsified data that is consistent passes.
"""
