"""What do counters say in one convention, and where do they disagree?"""
