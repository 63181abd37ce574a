"""The figures of a run, each from one derived table."""
