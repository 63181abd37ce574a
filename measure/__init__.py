"""Everything that touches a device or a model: tracer, timing, telemetry, ceilings, counters, recorded profiles.

Importing the package itself imports no torch. It knows no model by name.
"""
