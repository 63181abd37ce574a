"""What bounds each operation of a step, and what would help?

Bounds assume that each input is read once and each output is written once. What an advice would gain is an estimate
until it is measured.
"""
