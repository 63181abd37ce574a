"""Which order of the operations needs the least memory?"""
