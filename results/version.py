"""Holds the version of this program, defined only here."""

VERSION = "0.1.0"
