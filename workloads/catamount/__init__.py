"""Catamount's models of text and speech."""
