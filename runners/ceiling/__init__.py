"""What can this device really do?"""
