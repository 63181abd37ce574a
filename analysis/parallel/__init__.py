"""What does each rank of a parallel training step do, and what do all of them do together?

Arithmetic over what `measure.parallel` recorded. No time is derived here: `analysis.project` predicts steps.
"""
