"""What utilization does somebody's own training loop reach, measured while it trains?"""
