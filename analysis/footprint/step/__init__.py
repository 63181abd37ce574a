"""How much memory does a step need, and which batch fits?

Predicts tensors and PyTorch's caching allocator. Workspaces of libraries are an allowance, and memory that a CPU
kernel takes for itself is not included.
"""
