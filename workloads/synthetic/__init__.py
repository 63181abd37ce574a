"""Workloads with known answers.

For calibration only: no model that anyone trains.
"""
