"""Data that Fathom's networks are fed where none is on disk."""
