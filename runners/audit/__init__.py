"""What would each framework say of a model's FLOP and of a device's peak, and why is it off?

Not claimed: anything of a framework or a version that was not asked.
"""
