"""Defines operations and their costs in FLOP and bytes.

Counts what the definition of an operation requires. What a kernel does beyond that (padding, recomputation, Winograd)
is not counted, and an operator without a row has no count.
"""
