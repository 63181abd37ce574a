"""What would Catamount have counted?

A convention beside ours, for comparison with Catamount's published numbers. Nothing else in the project counts by it.
"""
