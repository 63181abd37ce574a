"""`python -m runners.audit MODEL…`: what would each framework say of a model's FLOP, and why is it not the exact count?

    python -m runners.audit --peaks     what do other packages' own tables say of a device's peak, beside ours?

Each framework's formula is run from its own published package, in a process of its own without network, on one sequence
of a model's configuration; the difference from the exact dense count is told by cause. Exit codes: 0 answered (a
package that is not there is a row with the reason); 1 with --peaks: no package was there; 2 the caller's mistake; 3 a
file could not be written; 130 Ctrl-C.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from runners.audit import options as audit_options
from runners.cli import Mistake, choice_error, guarded, passing, put, reserve, show_page

if TYPE_CHECKING:
    from analysis.audit import Answer, Model
    from measure.audit import AuditedPackage


LONGEST = ("lightning", "deepspeed", "calflops")
"""Frameworks that run each module, which takes most of a suite's time: they begin first."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    options = audit_options.parser().parse_args(arguments)
    if options.peaks:
        return guarded(lambda: _peaks(options), options.debug)
    return guarded(lambda: _run(options), options.debug)


def _peaks(options: Namespace) -> int:
    """Raises Mistake for what is of the other question."""
    from runners.audit.peaks import answer_peaks

    others = {"MODEL": options.models, "--suite": options.suite, "--page": options.page, "--install": options.install}
    if given := [name for name, value in others.items() if value]:
        raise Mistake(f"--peaks: goes without {given[0]}")
    return answer_peaks(options)


def _run(options: Namespace) -> int:
    from reports.audit import document, page, to_csv, to_text

    _check(options)
    frameworks, models = _frameworks(options), _models(options)
    if options.install:
        _install(options, frameworks)
    words = _run_words()
    answers = _all_answers(frameworks, models, options)
    passing("")
    if options.page is not None:
        put(options.page, page(answers, options.tokens, words))
    if options.format == "json":
        documents = [document(model, _tokens(model, options), answers) for model in models]
        shown = documents if len(documents) > 1 else documents[0]
        print(json.dumps(shown, indent=1, ensure_ascii=False, allow_nan=False))
    elif options.format == "csv":
        print(to_csv(answers), end="")
    elif options.page is None:
        show_page(lambda width, colour: to_text(answers, width, colour))
    return 0


def _check(options: Namespace) -> None:
    """Raises Mistake for options that cannot be meant together, and StoreFault for a page that could not be written:
    its formulas take long."""
    if options.models and options.suite is not None:
        raise Mistake(f"--suite: has all configurations, expected no MODEL with it, got {options.models[0]!r}")
    if options.page is None:
        return
    if options.suite is None:
        raise Mistake("--page: expected --suite audit with it, got single models")
    if "all" not in options.frameworks:
        raise Mistake("--page: has all frameworks, expected no --frameworks with it")
    if options.page.is_dir():
        raise Mistake(f"--page: expected a file, got the directory {options.page}")
    reserve(options.page)


def _models(options: Namespace) -> list[Model]:
    """Those that were asked for. Raises Mistake for a name of none, and for more tokens than a model has positions."""
    from analysis.audit import NetworkSizes, configurations

    known = configurations()
    if options.suite is None and not options.models:
        raise Mistake("expected a MODEL, --suite audit or --peaks, got none")
    if options.suite is not None:
        return list(known.values())
    found = {}
    for name in options.models:
        if name not in known and not name.startswith(HUB):
            raise Mistake(f"{choice_error('model', name, known)}; a configuration of your own is hf:CONFIG")
        model = known[name] if name in known else _own(name)
        is_fixed = isinstance(model, NetworkSizes) and model.is_fixed
        if model.positions and options.tokens > model.positions and not is_fixed:
            raise Mistake(f"--tokens: {name} has {model.positions} positions, got {options.tokens}")
        found[name] = model
    return list(found.values())


HUB = "hf:"
"""Before the path of a `config.json`, as in other commands."""


def _own(name: str) -> Model:
    """The configuration in a file. Raises Mistake."""
    from analysis.audit import own_architecture
    from results import json_value, read_text

    path = Path(name.removeprefix(HUB))
    path = path / "config.json" if path.is_dir() else path
    try:
        said = json_value(read_text(path))
        if not isinstance(said, dict):
            raise ValueError(f"{name}: expected an object with sizes, got {type(said).__name__}")
        return own_architecture(name, said)
    except OSError as fault:
        raise Mistake(f"{name}: {fault.strerror or fault}: expected the config.json of a model") from fault
    except ValueError as fault:
        raise Mistake(str(fault) if str(fault).startswith(name) else f"{name}: {fault}") from fault


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
    environment; of a framework that needs another's package, that one, too. Raises Mistake where pip fails."""
    from analysis.audit import RUN, frameworks

    known = frameworks()
    asked = {each for name in names for each in (name, known[name].needs)}
    for framework in (each for each in known.values() if each.framework in asked and each.how == RUN):
        found = _package_of(options, framework.framework)
        if found and found.version == framework.version:
            continue
        wanted = f"{framework.package}=={framework.version}"
        passing(wanted.replace("==", " "))
        # what runs of it is a formula: that all of it needs a newer Python does not matter
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--no-compile",
            "--ignore-requires-python",
        ]
        command += ["--ignore-requires-python", "--upgrade", "--target"]
        command += [str(options.formulas / framework.framework), wanted]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise Mistake(f"--install: pip could not install {wanted}: {ended.stderr.strip().splitlines()[-1][:200]}")


def _run_words() -> str:
    """When a page was made, and with which versions of what all formulas share."""
    versions = " and ".join(map(_version_words, ("torch", "transformers")))
    return f"Run on {datetime.date.today()} with Python {platform.python_version()}, {versions}."


def _version_words(name: str) -> str:
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return f"no {name}"


def _package_of(options: Namespace, name: str) -> AuditedPackage | None:
    """The package of a framework."""
    from analysis.audit import frameworks
    from measure.audit import find

    return find(options.formulas / name, frameworks()[name].package)


def _all_answers(names: Sequence[str], models: Sequence[Model], options: Namespace) -> list[Answer]:
    """A row for each framework and model. Each framework has a process of its own: as many at a time as processors.
    After Ctrl-C none begins."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        begun = sorted(names, key=lambda name: name not in LONGEST)
        try:
            waiting = {name: pool.submit(_answers, name, models, options) for name in begun}
            return [answer for name in names for answer in waiting[name].result()]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _answers(name: str, models: Sequence[Model], options: Namespace) -> list[Answer]:
    """Of one framework, a row for each model."""
    from analysis.audit import READ, account, frameworks, reading
    from measure.audit import Question, ask

    framework = frameworks()[name]
    asked = [(model, _tokens(model, options)) for model in models]
    passing(name)
    if framework.how == READ:
        return [account(model, tokens, framework, reading(framework, model, tokens)) for model, tokens in asked]
    needed = [each for each in (name, framework.needs) if each]
    found = {each: _package_of(options, each) for each in needed}
    missing = [frameworks()[each].package for each, package in found.items() if package is None]
    if missing:
        by = "python -m runners.audit --suite audit --install"
        verb = "is" if len(missing) == 1 else "are"
        said = [{"reason": f"{' and '.join(missing)} {verb} not installed: {by}"} for _ in asked]
    else:
        folders = [package.folder for package in found.values() if package]
        said = ask(name, folders, [Question(model, tokens) for model, tokens in asked], options.timeout)
    version = own.version if (own := found[name]) else ""
    pairs = zip(asked, said, strict=True)
    return [account(model, tokens, framework, each, version) for (model, tokens), each in pairs]
