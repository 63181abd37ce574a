"""Does a step of a loop run what was counted of its calls?

Says nothing of steps that were not observed, nor of what a step takes.
"""
