"""What do GPU-hours and budgets buy?"""
