"""What does a profile file of any profiler hold?"""
