"""What can a device do at best, and who says so?

Datasheet values carry their source and are found only by the exact name that the driver reports. A device without a
row has no peak.
"""
