"""Provides what a device can do at best, and the source of each figure.

Datasheet values carry their source and are found only by the exact name that the driver reports. A device without a row
has no peak.
"""
