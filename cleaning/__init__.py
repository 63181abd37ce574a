"""Turns raw records into cleaned records and a log of every change.

Never edits raw rows, and never imports torch.
"""
