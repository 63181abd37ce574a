"""Helpers of tests: fakes."""
