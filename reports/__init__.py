"""Tables, figures and pages from a run's rows. Sees neither hardware nor models.

It derives no number that `cleaning` or `analysis` does not have.
"""
