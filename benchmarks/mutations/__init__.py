"""Planted faults: where a fault can be planted, and which tests may notice it."""
