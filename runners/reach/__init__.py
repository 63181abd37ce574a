"""What could a step take at best on a device that you do not have, and what will it take? (`runners.reach`)"""
