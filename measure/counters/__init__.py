"""What does each FLOP counter say, how is it run, and which faults does it have?"""
