"""Helpers of tests: nets."""
