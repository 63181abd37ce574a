"""Work whose outcome is known, for the self-test: rates, times, counts, memory, energy and precision.

Shows that the program measures known work correctly on this device. Work of another kind is not covered.
"""
