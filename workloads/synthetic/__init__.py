"""Workloads with known answers."""
