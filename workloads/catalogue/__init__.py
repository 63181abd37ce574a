"""Which workloads are there, by name, before anything is built?"""
