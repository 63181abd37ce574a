"""How often a recording that was cut changes a total with nothing said: `python -m benchmarks.cut_recordings`."""
