"""Work whose outcome is known, for the self-test: rates, times, counts, memory, energy and precision."""
