"""What does this device reach in single kernels?"""
