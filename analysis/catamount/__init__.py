"""Counts a step as Catamount would.

The convention is for comparison with Catamount's published numbers. Others count by it on request (`--rules catamount`).
"""
