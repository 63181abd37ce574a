"""How a run is cited: the program with its version, the run with its date and device, and what goes with a number.

Title and authors are those of CITATION.cff (a test holds them together). Nothing is asked of a network or a clock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from results.records.cell import Sitting
from results.store.manifest import Manifest

AUTHORS = "The flopledger contributors"
TITLE = "flopledger: what fraction of a device's peak training a neural network really uses"

WITH_A_NUMBER = (
    "With a number, name its cell (model, batch size, precision), its 95 % interval, and the peak it is a fraction of "
    "with that peak's source. Anyone can check it: the run's directory holds the raw rows (runs.csv, samples.csv, "
    "flop_counts.csv), and python -m runners.report DIRECTORY makes this page of them again."
)
COMPARED = (
    "With a ratio, name both runs, its cell (model, batch size, precision) and its 95 % interval. Anyone can check it: "
    "the runs' directories hold the raw rows, and python -m runners.report A B --out DIRECTORY makes this page of them "
    "again."
)

_TEX = {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
_TEX |= {letter: f"\\{letter}" for letter in "{}%&_#$"}


@dataclass(frozen=True)
class Cited:
    """A run as a citation names it. version, year: empty where the run does not say."""

    run: str
    version: str
    year: str
    where: str

    @property
    def sentence(self) -> str:
        program = f"{TITLE}{f', version {self.version}' if self.version else ''}"
        return f"{AUTHORS}. {program}. {self._note}{f', {self.year}' if self.year else ''}."

    @property
    def bibtex(self) -> str:
        key = re.sub(r"[^A-Za-z0-9.-]+", "-", f"flopledger-{self.run}").strip("-")
        fields = {"author": f"{{{AUTHORS}}}", "title": _tex(TITLE), "version": _tex(self.version), "year": self.year}
        fields |= {"note": _tex(self._note)}
        lines = [f"  {name} = {{{text}}}" for name, text in fields.items() if text]
        return "\n".join((f"@misc{{{key},", ",\n".join(lines), "}"))

    @property
    def _note(self) -> str:
        return " ".join(filter(None, (f"Run {self.run},", self.where)))


def cited(manifest: Manifest | None, sittings: Sequence[Sitting]) -> Cited:
    """The run of these sessions; without a manifest it has no name of its own."""
    devices = dict.fromkeys(sitting.device_name or sitting.device for sitting in sittings)
    began = sorted(sitting.started_at[:10] for sitting in sittings if sitting.started_at)
    days = " to ".join(dict.fromkeys((began[0], began[-1]))) if began else ""
    where = " ".join(filter(None, ("measured", days, f"on {', '.join(devices)}" if devices else "")))
    year = began[-1][:4] if began and began[-1][:4].isdigit() else ""
    name, version = (manifest.name, manifest.harness_version) if manifest else ("", "")
    return Cited(name or "without a name", version, year, where)


def _tex(text: str) -> str:
    """Text that TeX sets as it stands, on one line."""
    return "".join(_TEX.get(letter, letter) for letter in " ".join(text.split()))
