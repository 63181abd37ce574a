"""Models of text and speech written here.

Standard architectures with random weights and random tokens.
"""
