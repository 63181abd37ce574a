"""What utilization does a user's training loop reach, measured while it trains?

Measures without synchronizing the device. A failure of the meter is one warning and never an error of the training.
"""
