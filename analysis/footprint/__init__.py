"""Predicts how much memory a step needs, and in which order of its operations.

Predicts tensors, the caching allocator and an allowance for libraries. See the packages for what they leave out.
"""
