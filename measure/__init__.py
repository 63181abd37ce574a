"""The hardware's edge: tracer, timing, telemetry, ceilings, counters. Knows no model; free of torch here."""
