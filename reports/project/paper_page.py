"""docs/frontier.md: how to project a model, and the paper's results beside ours. Its words are in a template."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from analysis.project.frontier import Accelerator, Domain, Formulas, first_order, frontier, shipped
from analysis.project.frontier import domain as frontier_domain
from analysis.project.papers import PaperCell, count, ppopp2019
from analysis.project.papers import results as papers_results
from analysis.stats import amount
from reports.project.paper import to_markdown

TEMPLATE = Path(__file__).with_name("templates") / "frontier.md.j2"


def page(cells: Sequence[PaperCell]) -> str:
    """The document."""
    import jinja2

    target = ppopp2019.target_of(papers_results.inputs("ppopp2019"))
    found = [
        (domain, shipped()[domain.model]) for domain in map(frontier_domain.shipped, frontier_domain.shipped_names())
    ]
    template = jinja2.Environment(autoescape=False, undefined=jinja2.StrictUndefined).from_string(
        TEMPLATE.read_text(encoding="utf-8")
    )
    return (
        template.render(
            example=(frontier_domain.FOLDER / "word_lm.toml").read_text(encoding="utf-8"),
            laws="\n".join(_laws(found, target)),
            batches="\n".join(_batches(found, target)),
            title=papers_results.PAPERS["ppopp2019"],
            count=len(cells),
            verdicts=", ".join(f"{number} {verdict}" for verdict, number in count(cells).items()),
            cells=to_markdown(cells).rstrip(),
        ).rstrip()
        + "\n"
    )


def _laws(domains: Sequence[tuple[Domain, Formulas]], target: Accelerator) -> Iterator[str]:
    yield "| domain | gamma | limit | worst | lambda | limit | mu | limit | worst | delta | limit | worst |"
    yield "| --- |" + " ---: |" * 11
    for domain, formulas in domains:
        grown = frontier.project(domain, formulas, target).grown
        fit, limits = first_order.fit_sweep(domain, formulas, target, grown), first_order.asymptote(domain, formulas)
        laws, worst = fit.laws, {name: f"{100 * ratio:.1f} %" for name, ratio in fit.worst_ratio.items()}
        cells = (
            *(amount(laws.gamma), amount(limits["gamma"]), worst["flop"]),
            *(amount(laws.lambda_), amount(limits["lambda"])),
            *(amount(laws.mu), amount(limits["mu"]), worst["bytes"]),
            *(amount(laws.delta), amount(limits["delta"]), worst["footprint"]),
        )
        yield f"| {domain.name} | {' | '.join(cells)} |"


def _batches(domains: Sequence[tuple[Domain, Formulas]], target: Accelerator) -> Iterator[str]:
    yield "| domain | width | ridge | fastest | saturated | the paper's |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for domain, formulas in domains:
        grown = frontier.project(domain, formulas, target).grown
        its = frontier.batches(domain, formulas, target, grown)
        cells = (f"{size:,}" if size else "none" for size in (grown, its.ridge, its.fastest, its.saturated))
        yield f"| {domain.name} | {' | '.join(cells)} | {domain.sub_batch} |"
