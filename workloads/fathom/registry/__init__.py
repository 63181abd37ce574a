"""Fathom's workloads by name, and its interface.

A table and a thin interface. The networks are in the modules beside this folder.
"""
