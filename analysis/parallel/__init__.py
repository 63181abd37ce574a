"""What each rank of a parallel training step does, and what all of them do together.

Arithmetic over what `measure.parallel` recorded. No time is derived here: `analysis.project` predicts steps.
"""
