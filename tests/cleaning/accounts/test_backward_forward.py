"""Backward ÷ forward of a training step: exact by kind, and all that 3 × forward misses named, to the last FLOP."""
