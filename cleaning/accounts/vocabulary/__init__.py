"""What can a counter count, see or miss?"""
