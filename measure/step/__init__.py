"""What does one training step of somebody's model cost, asked from Python in one call?"""
