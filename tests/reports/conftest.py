"""Figures are drawn in the project's theme."""

from collections.abc import Iterator

import pytest

from reports.shared import figure_style


@pytest.fixture(autouse=True, scope="module")
def themed() -> Iterator[None]:
    with figure_style.theme():
        yield
