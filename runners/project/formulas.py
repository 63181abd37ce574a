"""Formulas of a model that are not shipped: made by `runners.formula` from its own operation tables, in fp32."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from runners.cli.exits import FAILED, Mistake
from runners.cli.progress import passing

if TYPE_CHECKING:
    from analysis.project.frontier.domain import Domain
    from analysis.project.frontier.shipped_formulas import Formulas

BATCH = "batch"


def derived(domain: Domain, rules: str) -> Formulas | int:
    """The formulas of the domain's model in the size that grows, the sizes that follow it and the batch.

    The exit code, after one line on stderr, where it has none. Raises Mistake for a model or size that cannot be.
    """
    from analysis.formula.derivation.sampling import Unfitted
    from analysis.project.frontier.shipped_formulas import Formulas
    from results.errors import Unavailable
    from runners.cli.exits import Mistake as Wrong
    from runners.cli.model_options import check_models
    from runners.formula import options as formula_options
    from runners.formula.command import answer
    from runners.formula.points import NotBuilt

    options = formula_options.parser().parse_args(_words(domain, rules))
    check_models([domain.model], options)
    try:
        found = answer(options)
    except (NotBuilt, Unfitted, Unavailable) as fault:
        passing("")
        print(f"error: {fault}", file=sys.stderr)
        return FAILED
    except Wrong as fault:
        raise Mistake(str(fault).removeprefix("--symbols: ")) from fault
    passing("")
    sizes = {name: size for name, size in domain.sizes.items() if isinstance(size, int)}
    own = {name: size for name, size in found.point.items() if name != BATCH}
    quantities = {name: whole for name, whole in found.totals.items() if whole is not None}
    if "all_flop" not in quantities:
        quantities["all_flop"] = quantities["model_flop"]
    return Formulas(domain.model, found.rules, {**sizes, **own}, quantities)


def _words(domain: Domain, rules: str) -> Sequence[str]:
    """The command line of `runners.formula` for a domain."""
    from runners.formula.points import ALIASES

    follow = [name for name, size in domain.sizes.items() if isinstance(size, str)]
    fixed = [f"{ALIASES.get(name, name)}={size}" for name, size in domain.sizes.items() if isinstance(size, int)]
    words = [domain.model, "--rules", rules, "--symbols", ",".join([domain.grows, *follow, BATCH])]
    return [*words, "--hyper", ",".join(fixed)] if fixed else words
