"""What machine is this, and what does it report?

Facts and telemetry as the operating system and the driver report them. They are recorded and not verified here; the
gates do that.
"""
