"""Does a step of a loop run what was counted of its calls?"""
