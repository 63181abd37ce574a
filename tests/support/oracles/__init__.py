"""Helpers of tests: oracles."""
