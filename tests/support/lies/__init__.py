"""Lies about a run that nobody measured: what is said, of which rows, and which gate catches it."""
