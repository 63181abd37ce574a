"""Where do time, FLOP and bytes go?"""
