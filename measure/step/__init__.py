"""What does one training step of somebody's model cost, asked from Python in one call?

One model and one input at a time. A sweep is `runners.sweep`.
"""
