"""Benchmarks of what it costs to read what the system says of itself."""
