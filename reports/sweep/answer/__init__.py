"""What did a sweep find?

Every sentence follows from derived rows, and says where a cell did not converge.
"""
