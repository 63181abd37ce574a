"""Tables, figures and pages from a run's rows. Sees neither hardware nor models.

Reads rows and writes text, tables, figures and pages. It derives no number that `cleaning` or `analysis` does not
have.
"""
