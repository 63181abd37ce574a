"""Helpers of tests: slots that measure nothing, and a sweep on a Ray cluster."""
