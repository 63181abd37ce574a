"""How often the intervals of `what_if` hold the truth: `python -m benchmarks.what_if`."""
