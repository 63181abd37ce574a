"""Which operations does a training step run?"""
