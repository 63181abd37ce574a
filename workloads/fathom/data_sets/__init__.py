"""Fathom's real data sets, read from files."""
