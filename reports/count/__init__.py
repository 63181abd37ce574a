"""How far is each counter from the exact count, and why?"""
