"""What would each framework say of a training step's FLOP, and why is it not the exact count?"""
