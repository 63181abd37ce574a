"""analysis/devices/peaks.json: the table of peaks as one document for other programs, from the CSV files.

    python -m benchmarks.pages.peaks            # print the document
    python -m benchmarks.pages.peaks --write    # make peaks.json again

Not claimed: anything that `analysis/devices/peaks.csv` does not say.
"""

from __future__ import annotations

import argparse

from analysis.devices.registry import DOCUMENT, registry_text


def main() -> None:
    """Print the document or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.name}")
    if parser.parse_args().write:
        DOCUMENT.write_text(registry_text(), encoding="utf-8")
    else:
        print(registry_text(), end="")


if __name__ == "__main__":
    main()
