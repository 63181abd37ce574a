"""How does a step run without values, memory or device?"""
