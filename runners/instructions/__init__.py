"""Which floating-point instructions does an operator execute, beside its count? (`python -m runners.instructions`)"""
