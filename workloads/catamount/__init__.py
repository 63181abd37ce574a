"""Catamount's models of text and speech.

Written from Catamount's published graphs, with random weights. Nothing here was trained to an accuracy.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
