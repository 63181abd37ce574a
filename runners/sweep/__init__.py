"""What utilization does training reach here?"""
