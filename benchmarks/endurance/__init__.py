"""What becomes of the tool after a thousand kills, of ten thousand cells, in a day of measuring, beside neighbours?

Not claimed: anything about GPUs; all of it runs on CPUs.
"""
