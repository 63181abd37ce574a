"""Rebuild every table and figure of a run."""
