"""Predicts a step on a device that is not at hand: its least time, its probable time, and the times others measured.

A bound is a least time: no measured time may be below it. A predicted time has an interval whose coverage was counted
on data that the fit had not seen. Not claimed: that a device comes near its bound, or that a rate fitted on one
generation of devices holds on the next.
"""
