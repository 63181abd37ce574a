"""Fathom's networks, their data sets, their table and interface."""
