"""What does the dispatcher say about one call of an operator?"""
