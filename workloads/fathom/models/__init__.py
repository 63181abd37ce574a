"""Fathom's networks."""
