"""What bounds each operation of a step?

Bounds assume that each input is read once and each output is written once.
"""
