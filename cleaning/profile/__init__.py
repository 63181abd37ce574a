"""What did a profiler count of each product, once and without gaps?"""
