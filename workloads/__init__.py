"""What is trained: models, batches, losses, the step. Knows no clock.

Builds and trains. It does not measure.
"""
