"""Run as a program on a stand-in device: what a sweep's telemetry says of seconds in which nothing runs.

Prints JSON: preflight, readings, energy and warnings of a window, and why the device is lost. Imports no torch.
"""

import json
import sys
import time
from dataclasses import asdict

from runners.workers.devices import TelemetryWatch

LEAD_S, WINDOW_S = 0.3, float(sys.argv[1])

if __name__ == "__main__":
    watch = TelemetryWatch("cuda")
    found = {"reason": watch.reason, "preflight": watch.preflight()}
    watch.start()
    time.sleep(LEAD_S)
    start_s = time.monotonic()
    time.sleep(WINDOW_S)
    end_s = time.monotonic()
    time.sleep(LEAD_S)
    used = watch.energy(start_s, end_s)
    energy = {"energy_j": used.energy_j, "energy_method": used.energy_method}
    found |= {
        "energy": energy,
        "warnings": list(used.warnings),
        "lost": watch.loss(ask=True),
        "window_s": end_s - start_s,
    }
    found["readings"] = [asdict(reading) for reading in watch.window(start_s, end_s)]
    watch.close()
    print(json.dumps(found))
