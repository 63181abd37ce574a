"""Models that others made, by where they come from."""
