"""Computes the FLOP, memory and communication of each rank of a parallel training step, and of all ranks together.

The input is what `measure.parallel` recorded. No time is derived here: `analysis.project` predicts steps.
"""
