"""What is an operation, and what does it cost in FLOP and bytes?"""
