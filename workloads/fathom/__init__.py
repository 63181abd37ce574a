"""Builds Fathom's networks, reads their data sets, and offers Fathom's own interface.

The networks follow Fathom's papers, code and published sizes. Accuracies were not reproduced.
"""
