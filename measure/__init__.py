"""The hardware's edge: tracer, timing, telemetry, ceilings, counters. Knows no model; free of torch here.

Everything that touches a device or a model. The package itself is free of torch.
"""
