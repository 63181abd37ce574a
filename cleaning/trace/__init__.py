"""Assigns a recording's FLOP to its kernels, once and without gaps.

Corrects counts where sizes were recorded. A product without sizes has no count, and the total of its phase is unknown.
"""
