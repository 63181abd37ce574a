"""Helpers of tests: account nets."""
