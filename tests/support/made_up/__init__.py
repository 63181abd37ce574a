"""Helpers of tests: made up."""
