"""Fathom's networks.

The networks as coded and as in the paper, with random weights.
"""
