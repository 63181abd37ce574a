"""Counts a step as Catamount would.

The convention is for comparison with Catamount's published numbers; `--rules catamount` selects it.
"""
