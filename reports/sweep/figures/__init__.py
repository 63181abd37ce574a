"""The figures of a run, each from one derived table.

Each figure is drawn from one derived table and from nothing else.
"""
