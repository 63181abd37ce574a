"""How long does each operation of a step take?

Times of single operations include the overhead of the profiler. Totals are compared with steps without it.
"""
