"""Predicts how much memory a step needs, and the least that it would need in any order of its operations.

The prediction has tensors, the caching allocator and an allowance for libraries. Each module says what it leaves out.
"""
