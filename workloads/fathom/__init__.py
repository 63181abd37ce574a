"""Fathom's networks, their data sets, their table and interface.

Written from Fathom's papers and published sizes. Accuracies were not reproduced.
"""
