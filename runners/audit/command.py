"""`python -m runners.audit MODEL…`: what would each framework say of a model's FLOP, and why is it not the exact count?

    python -m runners.audit --peaks     what do other packages' own tables say of a device's peak, beside ours?

Each framework's formula is run from its own published package, in a process of its own without network, on one sequence
of a model's configuration; the difference from the exact dense count is told by cause. Exit codes: 0 answered (a
package that is not there is a row with the reason); 1 with --peaks: no package was there; 2 the caller's mistake; 3 a
file could not be written; 130 Ctrl-C.
"""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from runners.audit import options as audit_options
from runners.cli import Mistake, choice_error, guarded, passing, put, show_page

if TYPE_CHECKING:
    from analysis.audit import Answer, Model


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    options = audit_options.parser().parse_args(arguments)
    if options.peaks:
        from runners.audit.peaks import answer_peaks

        return guarded(lambda: answer_peaks(options), options.debug)
    return guarded(lambda: _run(options), options.debug)


def _run(options: Namespace) -> int:
    from reports.audit import document, page, to_csv, to_text

    if options.page is not None and options.suite is None:
        raise Mistake("--page: expected --suite audit with it, got single models")
    frameworks, models = _frameworks(options), _models(options)
    if options.install:
        _install(options, frameworks)
    answers = [answer for name in frameworks for answer in _answers(name, models, options)]
    passing("")
    if options.page is not None:
        put(options.page, page(answers, options.tokens))
    if options.format == "json":
        documents = [document(model, _tokens(model, options), answers) for model in models]
        shown = documents if len(documents) > 1 else documents[0]
        print(json.dumps(shown, indent=1, ensure_ascii=False, allow_nan=False))
    elif options.format == "csv":
        print(to_csv(answers), end="")
    elif options.page is None:
        show_page(lambda width, colour: to_text(answers, width, colour))
    return 0


def _models(options: Namespace) -> list[Model]:
    """Those that were asked for. Raises Mistake for a name of none, and for more tokens than a model has positions."""
    from analysis.audit import NetworkSizes, configurations

    known = configurations()
    if options.suite is None and not options.models:
        raise Mistake("expected a MODEL, --suite audit or --peaks, got none")
    if options.suite is not None:
        return list(known.values())
    for name in options.models:
        if name not in known:
            raise Mistake(choice_error("model", name, known))
        model = known[name]
        is_fixed = isinstance(model, NetworkSizes) and model.is_fixed
        if model.positions and options.tokens > model.positions and not is_fixed:
            raise Mistake(f"--tokens: {name} has {model.positions} positions, got {options.tokens}")
    return [known[name] for name in options.models]


def _frameworks(options: Namespace) -> list[str]:
    """In the order of the table. Raises Mistake for a name of none."""
    from analysis.audit import frameworks

    known = frameworks()
    for name in options.frameworks:
        if name not in (*known, "all"):
            raise Mistake(f"--frameworks: {choice_error('framework', name, ('all', *known))}")
    return [name for name in known if name in options.frameworks or "all" in options.frameworks]


def _tokens(model: Model, options: Namespace) -> int:
    from analysis.audit import NetworkSizes

    tokens: int = options.tokens
    if isinstance(model, NetworkSizes) and model.is_fixed:
        return model.positions
    return min(tokens, model.positions) if model.positions else tokens


def _install(options: Namespace, names: Sequence[str]) -> None:
    """Each package by pip into its folder, in the version that was audited, where it is not already there or in this
    environment. Raises Mistake where pip fails."""
    from analysis.audit import RUN, frameworks
    from measure.audit import version

    for name in names:
        framework = frameworks()[name]
        if framework.how != RUN or version(options.formulas / name, framework.package) == framework.version:
            continue
        passing(f"{framework.package} {framework.version}")
        wanted = f"{framework.package}=={framework.version}"
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target"]
        ended = subprocess.run(
            [*command, str(options.formulas / name), wanted], capture_output=True, text=True, check=False
        )
        if ended.returncode:
            raise Mistake(f"--install: pip could not install {wanted}: {ended.stderr.strip().splitlines()[-1][:200]}")


def _answers(name: str, models: Sequence[Model], options: Namespace) -> list[Answer]:
    """Of one framework, a row for each model."""
    from analysis.audit import READ, account, frameworks, reading
    from measure.audit import Question, ask, version

    framework = frameworks()[name]
    asked = [(model, _tokens(model, options)) for model in models]
    passing(name)
    if framework.how == READ:
        return [account(model, tokens, framework, reading(framework, model, tokens)) for model, tokens in asked]
    folder = options.formulas / name
    found = version(folder, framework.package)
    if found is None:
        reason = f"{framework.package} is not installed: python -m runners.audit --suite audit --install"
        said = [{"reason": reason} for _ in asked]
    else:
        said = ask(name, folder, [Question(model, tokens) for model, tokens in asked], options.timeout)
    pairs = zip(asked, said, strict=True)
    return [account(model, tokens, framework, each, found or "") for (model, tokens), each in pairs]
