"""How do workloads differ?

Shows what `analysis.characterize` made of the recordings.
"""
