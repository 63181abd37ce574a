"""Data that Fathom's networks are fed where none is on disk.

Synthetic data with the shapes and statistics that a step depends on. It replaces no data set.
"""
