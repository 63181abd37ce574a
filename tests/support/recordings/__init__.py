"""Helpers of tests: recordings of profilers, made up and real."""
