"""What can a counter count, see or miss?

Terms only. It does not run a counter or a model.
"""
