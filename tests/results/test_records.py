"""Law, definition, injected fault: records become text and come back equal; what could not come back is refused."""

import collections.abc
import csv
import dataclasses
import importlib
import io
import math
import pkgutil
import types
import typing
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results import records
from results.records.cell import Run, Telemetry
from results.records.rows import Range, Record, cell_text, column, columns_of, header, literal, read_rows, to_text
from results.store import layout
from results.store.layout import table, to_values

MODULES = [importlib.import_module(f"results.records.{each.name}") for each in pkgutil.iter_modules(records.__path__)]
KINDS = sorted(
    {
        kind
        for module in MODULES
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Record) and kind is not Record
    },
    key=lambda kind: kind.__name__,
)

line = st.text(st.characters(exclude_characters="\r\n\0", codec="utf-8"))
anything = st.one_of(line, st.text("\",\\ '\t;é×漢\x85\u2028\x1c", max_size=8))
json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def values(hint: Any, kept: Range) -> st.SearchStrategy[Any]:
    """Any value of a field's type whose numbers are within a range."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return st.one_of([values(option, kept) for option in typing.get_args(hint)])
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)[0]
        inner_values = st.text() if inner is str else values(inner, kept)
        return st.lists(inner_values, max_size=3).map(tuple)
    least = None if math.isinf(kept.low) else kept.low
    integers = st.integers(None if least is None else math.ceil(least) + kept.above)
    if typing.get_origin(hint) is collections.abc.Mapping:
        inner_values = json_value if kept == Range() else integers
        return st.dictionaries(st.text(), inner_values, max_size=3)
    most = None if math.isinf(kept.high) else kept.high
    floats = st.floats(least, most, exclude_min=kept.above, allow_nan=False, allow_infinity=kept.infinite)
    plain = {
        types.NoneType: st.none(),
        str: anything,
        bool: st.booleans(),
        int: integers,
        float: floats,
        Any: st.one_of(integers, st.text(), st.none()),
    }
    return plain[hint]


def records_of(kind: type[Record]) -> st.SearchStrategy[Record]:
    hints, columns = typing.get_type_hints(kind), columns_of(kind)
    return st.builds(kind, **{name: values(hints[name], columns[name].range or Range()) for name in columns})


def from_text(text: str, hint: Any, name: str = "") -> Any:
    return column(name, hint).read(text)


@pytest.mark.parametrize("depth", [600, 100_000])
@pytest.mark.parametrize("hint", [tuple[int, ...], collections.abc.Mapping[str, Any], tuple[Any, ...]])
def test_lists_within_lists_are_refused_in_a_short_line(hint, depth):
    """Beyond what Python's reader follows, and beyond what it follows but cannot turn into tuples."""
    with pytest.raises(ValueError, match="column shape: expected ") as fault:
        from_text("[" * depth + "0" + "]" * depth + "," * (depth < 1000), hint, "shape")
    assert len(str(fault.value)) < 400


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_record_comes_back_equal_from_csv_and_from_a_file_of_ours(kind):
    """The same rows both ways: making them up is what takes time."""

    @settings(max_examples=20, deadline=None)
    @given(st.lists(records_of(kind), max_size=3))
    def check(rows):
        check_csv(kind, rows)
        check_lines(kind, rows)

    check()


def check_csv(kind, rows):
    text = io.StringIO()  # the csv module as anybody else would use it
    csv.writer(text, lineterminator="\n").writerows(to_values(rows))
    assert text.getvalue().count("\n") == len(rows), "one line a record, whatever its text"
    again = csv.reader(io.StringIO(text.getvalue(), newline=""))
    assert read_rows(kind, header(kind), list(again)) == rows


def check_lines(kind, rows):
    data = layout.head(kind) + layout.encode(rows)
    lines = data.split(b"\n")
    assert lines.pop() == b"", "the file ends with a newline"
    assert len(lines) == 1 + len(rows)
    names, *texts = layout.decode(lines)
    assert tuple(names) == header(kind)
    assert read_rows(kind, names, texts) == rows


def test_a_count_that_is_integer_or_float_keeps_which():
    hint = int | float | None
    assert from_text(str(2**60 + 1), hint) == 2**60 + 1
    assert isinstance(from_text("3", hint), int)
    assert isinstance(from_text("3.0", hint), float)
    assert from_text("1.5", hint) == 1.5
    assert from_text("", hint) is None


def test_unknown_is_not_zero_and_not_empty():
    hints = typing.get_type_hints(Telemetry)
    assert from_text("", hints["event_reasons"]) is None
    assert from_text("[]", hints["event_reasons"]) == ()
    assert from_text("", hints["power_w"]) is None
    assert from_text("0.0", hints["power_w"]) == 0.0
    assert from_text("", str) == ""
    assert from_text("", str | None) is None
    assert from_text("", collections.abc.Mapping[str, int]) == {}
    with pytest.raises(ValueError, match="column steps: an empty field where int was expected"):
        from_text("", int, "steps")


@pytest.mark.parametrize(
    ("text", "hint"), [("True", bool), ("1.0", int), ("x", float), ("{", collections.abc.Mapping), ("x", int | float)]
)
def test_text_that_its_type_cannot_hold_names_the_column(text, hint):
    with pytest.raises(ValueError, match=r"column size: expected .*, got"):
        from_text(text, hint, "size")


@pytest.mark.parametrize(
    ("field", "value"),
    [("batch_size", 8.0), ("batch_size", True), ("batch_size", None), ("batch_size", "8"), ("compile", 1), ("model", 5)]
    + [("duration_s", "1"), ("duration_s", True), ("warnings", "a"), ("flags_before", [1]), ("reason", None)],
)
def test_what_could_not_be_read_back_is_refused(field, value):
    given = {
        "model": "m",
        "batch_size": 8,
        "device": "cpu",
        "cell_id": "c",
        "attempt": 1,
        "session": "s",
        "status": "ok",
    }
    run = Run(**{**given, field: value})
    with pytest.raises(ValueError, match=rf"Run\.{field}: expected .*, got"):
        list(to_values([run]))


@dataclasses.dataclass(frozen=True)
class Named(Record):
    module: str


FORMULAS = ["=cmd|' /C calc'!A0", "+1+1", "-2", "@SUM(1)", "\t=1", "'=1", "''-x", "=", "'@"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_name_like_a_formula_is_text_to_a_spreadsheet(text: str) -> None:
    assert cell_text(text) == f"'{text}"
    assert literal(cell_text(text)) == text
    assert list(to_values([Named(text)])) == [(f"'{text}",)]
    assert read_rows(Named, ["module"], [[f"'{text}"]]) == [Named(text)]
    assert table(Named, [Named(text)])["module"].tolist() == [text]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (2**80 + 1, "1208925819614629174706177"),  # 2^80 = 1208925819614629174706176
        (1.0, "1.0"),
        (1e300, "1e+300"),
        (math.inf, "inf"),
        ("a\r\nb\0c", "a  b c"),
        ((1, 2), "[1,2]"),
        ({"b": 1, "a": None}, '{"a":null,"b":1}'),
        ({"a": {"y", "x"}}, '{"a":["x","y"]}'),
        (types.MappingProxyType({"a": 1}), '{"a":1}'),
        (np.float64(0.1), "0.1"),
        (np.float32(0.5), "0.5"),
        (np.int64(2**53 + 1), "9007199254740993"),
        (np.bool_(True), "true"),
        ({"a": np.int64(3), "b": [np.float64(0.1)]}, '{"a":3,"b":[0.1]}'),
        ("\ud800", "\\ud800"),  # half a surrogate pair, as a file name can hold, has no UTF-8
    ],
)
def test_one_value_as_text(value, text):
    assert to_text(value) == text
