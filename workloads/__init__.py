"""Builds what is trained: models, batches, losses and steps of training.

The package knows no clock, and measures nothing.
"""
