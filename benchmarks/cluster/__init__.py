"""What does a sweep of many cells over a Ray cluster cost the process that keeps the run?"""
