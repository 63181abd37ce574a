"""Fathom's real data sets, read from files.

Reads files that the user has. Nothing is downloaded.
"""
