"""What becomes of the tool after a thousand kills, of ten thousand cells, and in a day of measuring?

Not claimed: anything about GPUs; all of it runs on CPUs.
"""
