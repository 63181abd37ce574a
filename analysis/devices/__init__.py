"""What can a device do at best, by whose word?"""
