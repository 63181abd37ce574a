"""What could a step take at best on a device that nobody here has, what will it probably take, what did others measure?

A bound is a least time: nothing that is measured may be under it. A predicted time has an interval whose coverage was
counted on what the fit had not seen. Not claimed: that a device comes near to its bound, or that a rate fitted on one
generation of devices holds on the next.
"""
