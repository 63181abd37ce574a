"""Helpers of tests: made up operations."""
