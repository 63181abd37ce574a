"""Counts a step as Catamount would.

A convention next to ours, for comparison with Catamount's published numbers. Nothing else in the project counts by it.
"""
