"""What will training take, on which machine, and what does a budget buy?

Projections from stated inputs. None of them is a measurement.
"""
