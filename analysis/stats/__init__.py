"""What is a noisy number worth, and do two of them differ?"""
