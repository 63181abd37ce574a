"""Fathom's workloads by name, and its interface."""
