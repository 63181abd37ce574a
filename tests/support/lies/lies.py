"""Lies about a run: each field of each raw file × what can be done to its value, in one row or in all. Data-driven.

A lie is generated from the record that the field belongs to; `KINDS` has what is done to a value, `TARGETS` which rows
of a file are lied about, `RENAMES` what a word becomes. Ids that follow from a row's parameters are made anew, as are
all checksums (`tests/support/lies/lie_rows.py`), so that only what the rows mean can show it. To add one, see
CONTRIBUTING.md.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from results.records import Parameters, Run, header
from results.store.layout import key_of
from results.store.manifest import Manifest
from tests.support.lies.lie_rows import Rows

NO = object()
"""What a kind gives for a value that it cannot change."""


def _numbers(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def changed(value: Any) -> Any:
        if isinstance(value, bool) or value is None:
            return NO
        if isinstance(value, (int, float)):
            return NO if change(value) == value else change(value)
        if isinstance(value, (tuple, list)) and value:
            parts = [changed(each) for each in value]
            if all(part is NO for part in parts):
                return NO
            return type(value)(old if new is NO else new for old, new in zip(value, parts, strict=True))
        return NO

    return changed


def _wiped(value: Any) -> Any:
    if value is None or value == "" or isinstance(value, (bool, int)):
        return NO
    blank = {str: "", tuple: (), list: []}.get(type(value), {} if isinstance(value, Mapping) else None)
    return NO if value == blank else blank


def _renamed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, str) and value:
        return RENAMES.get(value, f"{value}x")
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], str):
        return type(value)([_renamed(value[0]), *value[1:]])
    return NO


KINDS: dict[str, Callable[[Any], Any]] = {
    "doubled": _numbers(lambda value: 2 * value),
    "halved": _numbers(lambda value: value // 2 if isinstance(value, int) else value / 2),
    "sign": _numbers(lambda value: -value),
    "wiped": _wiped,
    "renamed": _renamed,
}
"""What is done to a value. "swapped", with another row's, needs two; see `lies`."""

RENAMES = {
    "resnet50": "vgg16",
    "resnet18": "vgg16",
    "alexnet": "vgg16",
    "mobilenet_v2": "vgg16",
    "ok": "not_converged",
    "not_converged": "ok",
    "cuda": "cpu",
    "cpu": "cuda",
    "fp32": "tf32",
    "tf32": "fp32",
    "bf16": "fp16",
    "amp-bf16": "amp-fp16",
    "channels_first": "channels_last",
    "channels_last": "channels_first",
    "sgd": "adamw",
    "synthetic": "cifar10",
    "measure": "warmup",
    "warmup": "measure",
    "phase": "measure",
    "profiled": "measure",
    "forward": "backward",
    "backward": "forward",
    "optimizer": "backward",
    "loss": "forward",
    "mac": "flop",
    "lag1": "lag1_raised",
    "lag1_raised": "lag1",
    "flop": "mac",
    "counter": "polled",
    "polled": "counter",
    "matmul": "convolution",
    "convolution": "matmul",
    "activation": "elementwise",
    "weight": "activation",
    "input": "weight",
    "temporary": "activation",
    "float32": "bfloat16",
    "bfloat16": "float32",
    "NVIDIA H200": "NVIDIA A100-SXM4-80GB",
    "theory": "exact",
    "exact": "batch",
    "fvcore": "ptflops",
    "ptflops": "fvcore",
    "batch": "one",
    "one": "batch",
    "sw_power_cap": "gpu_idle",
    "high": "highest",
    "highest": "high",
    "ieee": "tf32",
}
"""What a word becomes: another word of its column. Every other word gets a letter more."""

TARGETS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "samples": {part: lambda row, part=part: row.part == part for part in ("warmup", "measure", "phase", "profiled")},
    "flop_counts": {"total": lambda row: not row.operator, "operator": lambda row: bool(row.operator)},
    "operations": {
        "product": lambda row: row.name == "aten.convolution",
        "other": lambda row: row.kind == "activation",
        "gradient": lambda row: row.name == "aten.convolution_backward",
    },
    "storages": {role: lambda row, role=role: row.role == role for role in ("weight", "input", "activation")},
    "profiles": {
        "outer": lambda row: row.parent is None and row.phase == "forward",
        "inner": lambda row: row.parent is not None,
        "gradient": lambda row: row.phase == "backward",
    },
    "ceilings": {name: lambda row, name=name: row.operation == name for name in ("matmul", "convolution")},
}
"""File → which of its rows are lied about, by a name; of other files all are alike."""

MAPPINGS = ("options", "peak_row", "environment", "preflight", "flags_before", "flags_after", "executed", "attributes")
"""Fields whose entries are lied about one by one."""

SEALS = {("runs", "committed"), ("manifest", "schema_version"), ("self_test", "checks")}
"""Fields that are made anew with every lie, or that decide how the rest is read: `tests/cleaning/gates/test_gates.py`
has those."""

PARAMETERS = set(header(Parameters))


@dataclass(frozen=True)
class Lie:
    """file: of `Rows`, without its ending. field: "environment.name" is an entry of a mapping. target: which rows.
    scope: one row, or all. apply: the rows with it."""

    file: str
    target: str
    field: str
    kind: str
    scope: str
    apply: Callable[[], Rows]

    @property
    def name(self) -> str:
        target = f"[{self.target}]" if self.target else ""
        return f"{self.file}{target} {self.field} {self.kind} {self.scope}"


def lies(base: Rows, files: Iterable[str] = ()) -> Iterator[Lie]:
    """Every lie about a run that its rows can be told, by file, field, kind and scope. files: about these alone."""
    for file in (file for file in _files(base) if not files or file in files):
        for target, fits in TARGETS.get(file, {"": lambda row: True}).items():
            rows = [row for row in _rows(base, file) if fits(row)]
            if not rows:
                continue
            for name in _fields(rows):
                for kind in (*KINDS, "swapped"):
                    yield from _of(base, file, target, fits, name, kind)


def _files(base: Rows) -> Iterator[str]:
    yield from (f.name for f in fields(base) if getattr(base, f.name))


def _rows(base: Rows, file: str) -> Sequence[Any]:
    held = getattr(base, file)
    if isinstance(held, Manifest):
        return [held]
    return [row for rows in held.values() for row in rows] if isinstance(held, dict) else held


def _fields(rows: Sequence[Any]) -> Iterator[str]:
    for f in fields(rows[0]):
        if f.name in MAPPINGS:
            held = [getattr(row, f.name) for row in rows]
            entries = dict.fromkeys(key for value in held if isinstance(value, Mapping) for key in value)
            yield from (f"{f.name}.{key}" for key in entries)
        yield f.name


def _get(row: Any, name: str) -> Any:
    field, _, entry = name.partition(".")
    value = getattr(row, field)
    return value if not entry else (value or {}).get(entry)


def _set(row: Any, name: str, value: Any) -> Any:
    field, _, entry = name.partition(".")
    if not entry:
        return replace(row, **{field: value})
    rest = {key: each for key, each in getattr(row, field).items() if key != entry}
    return replace(row, **{field: rest if value is None else {**rest, entry: value}})


def _optional(row: Any, name: str) -> bool:
    """Whether a field can be unknown; entries of mappings can be left out."""
    return "." in name or type(None) in typing.get_args(typing.get_type_hints(type(row))[name])


def _of(base: Rows, file: str, target: str, fits: Callable[[Any], bool], name: str, kind: str) -> Iterator[Lie]:
    rows = _rows(base, file)
    if (file, name) in SEALS:
        return
    changes = {i: new for i, row in enumerate(rows) if fits(row) and (new := _new(rows, i, name, kind, fits)) is not NO}
    if not changes:
        return
    middle = sorted(changes)[len(changes) // 2]
    scopes = {"one": {middle: changes[middle]}}
    if kind != "swapped" and len(changes) > 1:
        scopes["all"] = changes
    for scope, some in scopes.items():
        if kind == "swapped":
            other = _other(rows, middle, name, fits)
            some = {middle: _get(rows[other], name), other: _get(rows[middle], name)}
        yield Lie(file, target, name, kind, scope, lambda some=some: _told(base, file, name, some))


def _new(rows: Sequence[Any], i: int, name: str, kind: str, fits: Callable[[Any], bool]) -> Any:
    value = _get(rows[i], name)
    if kind == "swapped":
        return NO if _other(rows, i, name, fits) is None else value
    if kind == "wiped" and isinstance(value, (int, float)):
        return None if _optional(rows[i], name) else NO
    new = KINDS[kind](value)
    if kind == "wiped" and "." in name and new is not NO:
        return None
    return new


def _other(rows: Sequence[Any], i: int, name: str, fits: Callable[[Any], bool]) -> int | None:
    """The next row, or one before, whose value is another."""
    order = [*range(i + 1, len(rows)), *range(i)]
    return next((j for j in order if fits(rows[j]) and _get(rows[j], name) != _get(rows[i], name)), None)


def _told(base: Rows, file: str, name: str, changes: Mapping[int, Any]) -> Rows:
    """The rows with other values of one field."""
    made = base.copy(*COPIED.get(file, (file,)))
    held = getattr(made, file)
    if isinstance(held, Manifest):
        return replace(made, manifest=_set(held, name, changes[0]))
    lists = list(held.values()) if isinstance(held, dict) else [held]
    start = 0
    for rows in lists:
        for i in range(len(rows)):
            if start + i in changes:
                old = rows[i]
                rows[i] = _set(old, name, changes[start + i])
                if file == "runs" and name.partition(".")[0] in PARAMETERS:
                    rows[i] = sealed(made, rows[i])
        start += len(rows)
    return made


CHILDREN = ("samples", "telemetry", "flop_counts")
"""Files whose rows carry the id of their cell."""

COPIED: dict[str, tuple[str, ...]] = {"manifest": (), "runs": ("runs", *CHILDREN)}
"""File → the lists that a lie about it changes, where that is not its own."""


def sealed(rows: Rows, run: Run) -> Run:
    """The cell under the id that its parameters give now, in every file."""
    old, new = key_of(run), run.cell.cell_id
    for file in CHILDREN:
        held = getattr(rows, file)
        held[:] = [replace(row, cell_id=new) if key_of(row) == old else row for row in held]
    if old in rows.profiles:
        rows.profiles = {(new, run.attempt) if key == old else key: each for key, each in rows.profiles.items()}
    return replace(run, cell_id=new)
