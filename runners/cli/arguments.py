"""Parses every command's line: a caller's mistake is one line on stderr and exit code 2, never a traceback.

`Parser` takes the arguments and returns a Namespace. `number`, `names`, `sizes` and others are, or return, the `type=`
of an option. An error line says what was expected, what came, and the nearest valid name. This module knows no command
and prints nothing on stdout. It imports no third-party package, so that `--help` and syntax errors answer at once.
"""

import argparse
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

from results.printable import printable
from results.text_files import nearest, stated
from runners.cli.exits import MISTAKE
from runners.cli.output import say, with_install_hint

SHORT_PRECISIONS = {"bf16": "amp-bf16", "fp16": "amp-fp16"}
"""Another spelling of a precision → its name."""

FORMATS = ("table", "csv", "json")
"""Forms in which a command prints data."""

CONVENTIONS = ("flop", "post2021")
"""Conventions of an answer. flop: FLOP and the unit's peak. post2021: the arithmetic of Hobbhahn's post of 2021."""

MARGIN_RATIO = 0.1
"""Share of the memory left for the device's context, libraries' workspaces and memory that the allocator cannot use."""

MOST_SHARE = 10.0
"""Largest ratio that `share` accepts."""

SHOWN = 8
"""Maximum number of valid names in a message; the message says how many more there are."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line and that accepts no abbreviated options.

    `fail` is for mistakes that only the command can see, such as a name that needs a table to check. rare: destinations
    of options that only `--help all` shows.
    """

    rare: Collection[str] = ()

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("allow_abbrev", False)
        settings.setdefault("formatter_class", _Formatter)
        super().__init__(**settings)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does. Where a shell asks for completions (`_ARGCOMPLETE` in the environment), prints them
        and ends the process."""
        if "_ARGCOMPLETE" in os.environ:
            import argcomplete

            argcomplete.autocomplete(self, always_complete_options="long")
        return super().parse_args(args, namespace)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does. Invalid limits in the environment end the process, too."""
        try:
            stated()
        except ValueError as fault:
            self.fail(str(fault))
        given = sys.argv[1:] if args is None else list(args)
        if given[-1:] == ["all"] and given[-2:-1] in (["--help"], ["-h"]):
            self.rare = ()
        return super().parse_known_args(given, namespace)

    def format_help(self) -> str:
        """Format as argparse does, without the rare options."""
        for action in self._actions:
            action.help = argparse.SUPPRESS if action.dest in self.rare else action.help
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print one line on stderr and exit with 2."""
        self.fail(self._unknown_option(message) or message)

    def fail(self, message: str) -> NoReturn:
        """Exit with 2 after `error: message` as one line on stderr."""
        say(f"error: {printable(' '.join(with_install_hint(message).split()))}")
        self.exit(MISTAKE)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, choice_error("value", value, action.choices))

    def _unknown_option(self, message: str) -> str | None:
        """Return argparse's "unrecognized arguments: --fromat csv" with the nearest option; None for other messages."""
        label, _, rest = message.partition(": ")
        if label != "unrecognized arguments" or not rest:
            return None
        first = (rest.split() or [""])[0]
        return choice_error("argument", first.partition("=")[0], self._option_string_actions)


def choice_error(kind: str, got: object, valid: Iterable[str]) -> str:
    """Return one line about an invalid name: "unknown KIND: expected A, B or C, got 'X', nearest A".

    The line lists at most `SHOWN` valid names; the nearest name is taken from all of them.
    """
    names = [str(name) for name in valid]
    near = nearest(str(got), names)
    line = f"unknown {kind}: expected {_listed(names)}, got {str(got)!r}"
    return f"{line}, nearest {' or '.join(near)}" if near else line


def number(kind: type[int] | type[float], low: float | None = None, high: float | None = None) -> Callable[[str], Any]:
    """Return a `type=` that accepts numbers of this kind from low to high, and whose message has these bounds."""
    wanted = "a whole number" if kind is int else "a number"
    if low is not None:
        wanted += f" of at least {low:g}" if high is None else f" from {low:g} to {high:g}"

    def convert(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        below = low is not None and value is not None and not value >= low  # `not >=` refuses nan
        above = high is not None and value is not None and not value <= high
        if value is None or below or above:
            raise argparse.ArgumentTypeError(f"expected {wanted}, got {text!r}")
        return value

    return convert


def precision(text: str) -> str:
    """Parse a precision, by its name or a short one; `choices` checks it."""
    return SHORT_PRECISIONS.get(text, text)


def counts(text: str) -> tuple[int, ...]:
    """Parse whole numbers of at least 1, separated by commas. Duplicates are dropped."""
    convert = number(int, 1)
    return tuple(dict.fromkeys(convert(part.strip()) for part in text.removesuffix(",").split(",")))


def share(text: str) -> float:
    """Parse a relative limit as a ratio: "2%" is 0.02. A number without % is refused unless it is 0, since it could be
    a ratio or a percentage."""
    number_text, percent_sign, rest = text.strip().partition("%")
    try:
        ratio = float(number_text) / 100
    except ValueError:
        ratio = -1.0
    if rest or not 0 <= ratio <= MOST_SHARE or (ratio and not percent_sign):
        raise argparse.ArgumentTypeError(f"expected a limit such as 2%, at most {MOST_SHARE:.0%}, got {text!r}")
    return ratio


def sizes(text: str) -> dict[str, int]:
    """Parse sizes by name: "hidden=256,seq=20"."""
    by_name: dict[str, int] = {}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not (equals and name.isidentifier()) or name in by_name:
            raise argparse.ArgumentTypeError(f"expected NAME=N,NAME=N, each name once, got {text!r}")
        try:
            by_name[name] = number(int, 1)(value)
        except argparse.ArgumentTypeError as fault:
            raise argparse.ArgumentTypeError(f"{name}: {fault}") from fault
    return by_name


class CombinedLists(argparse.Action):
    """Joins the lists of several arguments of one option without repetition: `--models a,b c` is a, b and c."""

    def __call__(self, _parser: Any, namespace: argparse.Namespace, values: Any, _option: str | None = None) -> None:
        setattr(namespace, self.dest, tuple(dict.fromkeys(itertools.chain.from_iterable(values))))


def names(
    kind: str, valid: Sequence[str] | None = None, short: Mapping[str, str] = MappingProxyType({})
) -> Callable[[str], tuple[str, ...]]:
    """Return a `type=` for a comma-separated list without repetition; with `valid`, each must be one of these names.

    short: another spelling → the name.
    """

    def convert(text: str) -> tuple[str, ...]:
        parts = [short.get(part.strip(), part.strip()) for part in text.removesuffix(",").split(",")]
        if not all(parts):
            raise argparse.ArgumentTypeError(f"expected {kind} names separated by commas, got {text!r}")
        for part in parts:
            if valid is not None and part not in valid:
                raise argparse.ArgumentTypeError(choice_error(kind, part, valid))
        return tuple(dict.fromkeys(parts))

    return convert


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:SHOWN])
    if len(names) > SHOWN:
        return f"{', '.join(shown)} or {len(names) - SHOWN} more"
    return " or ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown) or "nothing"


class _Formatter(argparse.HelpFormatter):
    """Help at the width of the terminal, but no wider than 100 columns."""

    def __init__(self, prog: str, **settings: Any) -> None:
        width = min(shutil.get_terminal_size((100, 24)).columns, 100)
        super().__init__(prog, **{**settings, "width": width, "max_help_position": 32})

    def _format_usage(self, usage: str | None, actions: Iterable[argparse.Action], *rest: Any) -> str:
        """Return argparse's usage of positional arguments, with one word for the options, which are listed below."""
        positional = [action for action in actions if not action.option_strings]
        return super()._format_usage(usage, positional, *rest).rstrip() + " [options]\n\n"

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        """Return argparse's text, with a list's name only once."""
        text = super()._format_args(action, default_metavar)
        return text.split(" [")[0] if action.nargs == argparse.ONE_OR_MORE and action.option_strings else text


class LinesFormatter(_Formatter):
    """A formatter for which each line of the description and of the epilog begins a line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(super(LinesFormatter, self)._fill_text(line, width, indent) for line in text.splitlines())
