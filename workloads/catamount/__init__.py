"""Catamount's models of text and speech.

Written from Catamount's published graphs, with random weights. Nothing here was trained to an accuracy.
"""
