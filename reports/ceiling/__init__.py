"""What can this device really do?

Shows the kernels that were tried, with their spread.
"""
