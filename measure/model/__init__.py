"""How is somebody else's model run, and left as it was?"""
