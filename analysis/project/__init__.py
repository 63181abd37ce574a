"""What training will take, on which machine, and what a budget buys.

Projections from stated inputs. None of them is a measurement.
"""
