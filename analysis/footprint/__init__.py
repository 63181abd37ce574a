"""How much memory does a step need, in which order of its operations?

Predicts tensors, the caching allocator and an allowance for libraries. See the packages for what they leave out.
"""
