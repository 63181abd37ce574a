"""What machine is this, and what does it say of itself?"""
