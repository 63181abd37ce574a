"""Which workloads are there, by name, before anything is built?

Names and facts only: nothing is built, and torch is not imported.
"""
