"""What does training to a target take, and on which machine?

Extends learning curves beyond the data that they were fitted to. An interval covers the stated uncertainty of the
inputs only.
"""
