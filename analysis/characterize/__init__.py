"""Describes how workloads differ.

Works on recorded times and counts. It describes the workloads that were recorded and does not extend to others.
"""
