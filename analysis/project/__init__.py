"""Predicts what training to a target error takes: data, parameters, FLOP, memory and time on stated machines.

Projections follow from stated inputs. None of them is a measurement.
"""
