"""Tables, figures and pages from a run's rows. Sees neither hardware nor models."""
