"""What `runners.profile` tells: the report in the form that was asked for, and the files of `--out`.

profile.txt, profile.json, modules.csv, operations.csv, the roofline as PNG and SVG, and profile.html, last, so that a
picture that fails loses no table.
"""

from __future__ import annotations

import json
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from runners.cli.output import put, reserve

if TYPE_CHECKING:
    from results.records.step_profile import StepProfile

PAGE = "profile.html"
PICTURE = "roofline"


def make(options: Namespace) -> None:
    """The directories of --out and --output-file, before anything is measured for them. Raises StoreFault."""
    for path in filter(None, (options.out and options.out / PAGE, options.output_file)):
        reserve(path)


def report(profile: StepProfile, options: Namespace, width: int | None = None, colour: bool = False) -> str:
    """The report as text, CSV or JSON. width: of the terminal that it is for, colour: if it has any; None: none."""
    from reports.profile import data as profile_data

    if options.format == "json":
        return json.dumps(profile_data.document(profile), indent=1, allow_nan=False) + "\n"
    if options.format == "csv":
        made = profile_data.operations_csv if options.operations else profile_data.modules_csv
        return made(profile)
    if width is None:
        return _text(profile, options)
    from reports.profile.terminal import terminal_text

    return terminal_text(
        profile, **_display_options(options), operations=options.operations, width=width, colour=colour
    )


def write(profile: StepProfile, options: Namespace) -> None:
    """Every file of --out. Raises StoreFault."""
    from reports.profile import data as profile_data
    from reports.profile import figures
    from reports.profile import page as profile_page
    from reports.shared import figure_style

    out = options.out
    put(out / "profile.json", json.dumps(profile_data.document(profile), indent=1, allow_nan=False) + "\n")
    put(out / "modules.csv", profile_data.modules_csv(profile))
    put(out / "operations.csv", profile_data.operations_csv(profile))
    put(out / "profile.txt", _text(profile, options))
    drawn: dict[str, bytes] = {}
    with figure_style.theme():
        figure = figures.roofline(profile)
        if figure is not None:
            drawn = figure_style.render(figure)
    for ending, content in drawn.items():
        put(out / f"{PICTURE}.{ending}", content)
    put(out / PAGE, profile_page.page(profile, drawn["svg"].decode() if drawn else ""))


def _text(profile: StepProfile, options: Namespace) -> str:
    from reports.profile.tree import operations_text, tree_text

    text = tree_text(profile, **_display_options(options))
    return f"{text}\n{operations_text(profile)}" if options.operations else text


def _display_options(options: Namespace) -> dict[str, Any]:
    """How much of the modules is shown."""
    return {"depth": options.module_depth, "top": options.top_modules, "detailed": options.detailed}
