"""What does each FLOP counter say?"""
