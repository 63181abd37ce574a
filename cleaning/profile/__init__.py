"""What did a profiler count of each product, once and without gaps?

Corrects counts of recorded products by their sizes. It does not correct times.
"""
