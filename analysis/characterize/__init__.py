"""Describes how workloads differ.

The package takes recorded times and counts. Its results hold for the recorded workloads only.
"""
