"""What do the masks of a loop's batches leave of its attention?

Padding alone. Which masks a model makes without it is in `measure.model`.
"""
