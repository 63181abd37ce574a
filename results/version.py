"""The version of this program, in its only place."""

VERSION = "0.1.0"
