"""Made-up derived tables of a sweep: rows with the shape and the sizes of real ones, for tests of what is drawn.

Forward counts, the first product of each model and what the counters add to them are real (torchvision's models, one
image of 3 × 224 × 224, 10 classes); times, shares of single layers and utilizations are invented.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.records.answers import Utilization, WorkTime
from results.records.counts import Agreement, CleanedOperation, ProfileCount, Ratio
from results.records.rows import Record, header

PEAKS = {"fp32": 67e12, "tf32": 494.7e12, "amp-bf16": 989.4e12}


@dataclass(frozen=True)
class Made:
    """One model. mac: of the forward pass; first: of its first product; seen: backward FLOP the profiler counts;
    counted: counter → total ÷ exact; grouped: FlopCounterMode's backward ÷ exact; products: convolutions, linears."""

    mac: int
    first: int
    seen: int
    counted: tuple[float | None, float, float, float | None]  # fvcore, ptflops, ptflops_aten, pthflops
    grouped: float
    products: int

    @property
    def forward(self) -> int:
        return 2 * self.mac

    @property
    def backward(self) -> int:
        return 4 * self.mac - 2 * self.first


MODELS = {
    "alexnet": Made(710133440, 70276800, 218280960, (1.000013, 1.003171, 1.000695, 1.003546), 1.0, 8),
    "vgg11": Made(7605035008, 86704128, 478322688, (1.000003, 1.004549, 1.000978, 1.003698), 1.0, 11),
    "vgg13": Made(11304411136, 86704128, 478322688, (1.000002, 1.004339, 1.001084, 1.003766), 1.0, 13),
    "vgg16": Made(15466209280, 86704128, 478322688, (1.000002, 1.003424, 1.000876, 1.003006), 1.0, 16),
    "vgg19": Made(19628007424, 86704128, 478322688, (1.000001, 1.002898, 1.000757, 1.002568), 1.0, 19),
    "resnet18": Made(1813566464, 118013952, 20480, (1.002753, 1.006197, 1.0, 1.007014), 1.0, 21),
    "resnet34": Made(3663254528, 118013952, 20480, (1.002048, 1.004438, 1.0, 1.005184), 1.0, 37),
    "resnet50": Made(4087156736, 118013952, 81920, (1.005463, 1.010582, 1.0, 1.013259), 1.0, 54),
    "resnet101": Made(7799377920, 118013952, 81920, (1.004175, 1.00817, 1.0, 1.010448), 1.0, 105),
    "resnet152": Made(11511599104, 118013952, 81920, (1.003927, 1.007732, 1.0, 1.010008), 1.0, 156),
    "wide_resnet50_2": Made(11395993600, 118013952, 81920, (1.002536, 1.004949, 1.0, 1.005909), 1.0, 54),
    "mobilenet_v2": Made(299507072, 10838016, 52480, (1.044803, 1.06519, 1.0, 1.046039), 9.923119, 53),
    "efficientnet_b0": Made(384547552, 10838016, 4875648, (1.041203, 1.063402, 1.000024, 1.054316), 20.711409, 82),
    "vit_b_16": Made(17563067904, 115605504, 66928539648, (0.960348, 1.002403, 0.96021, None), 1.010216, 98),
}
SUITE = tuple(MODELS)[:13]
OF = ("fvcore", "ptflops", "ptflops_aten", "pthflops")
SPEED = {"mobilenet_v2": 0.06, "efficientnet_b0": 0.057, "alexnet": 0.35, "vgg19": 0.76, "vit_b_16": 0.58}


@dataclass(frozen=True)
class Grid:
    """A sweep. lost: (model, batch size) → status of a cell that was not measured; epoch: images in one."""

    models: Sequence[str] = SUITE
    batches: Sequence[int] = (1, 64, 128)
    precisions: Sequence[str] = ("fp32",)
    variants: Sequence[str] = ("",)
    repeats: int = 1
    lost: Any = ()
    epoch: int = 10_000
    names: Any = ()  # model → the name it goes by

    def cells(self) -> Iterable[tuple[str, dict[str, Any]]]:
        """(the made-up model, the columns that all its rows share)."""
        number = 0
        for model in self.models:
            for precision in self.precisions:
                for batch in self.batches:
                    for variant in self.variants:
                        for repeat in range(self.repeats):
                            number += 1
                            name = dict(self.names).get(model, model)
                            yield (
                                model,
                                {
                                    "cell_id": f"{number:016x}",
                                    "attempt": 1,
                                    "model": name,
                                    "batch_size": batch,
                                    "precision": precision,
                                    "device": "cuda",
                                    "variant": variant,
                                    "repeat": repeat,
                                },
                            )


def kept(shared: dict[str, Any], record: type[Record]) -> dict[str, Any]:
    return {name: value for name, value in shared.items() if name in record.__dataclass_fields__}


def step_s(model: str, shared: dict[str, Any], batch: int) -> float:
    """A step: less efficient at small batches, 3 % apart from repeat to repeat."""
    made = MODELS[model]
    best = SPEED.get(model, 0.5) * (1.15 if shared["variant"] else 1.0)
    rate = PEAKS[shared["precision"]] * best * batch / (batch + 24)
    return batch * (made.forward + made.backward) / rate * (1 + 0.03 * shared["repeat"])


def epoch_s(model: str, shared: dict[str, Any], images: int) -> float:
    full, last = divmod(images, shared["batch_size"])
    return full * step_s(model, shared, shared["batch_size"]) + (step_s(model, shared, last) if last else 0.0)


def fractions(grid: Grid, *, post2021: bool = False, theories: Sequence[str] = ("fvcore", "ptflops")) -> list[Record]:
    """utilization.csv: every method over the datasheet's peak (and, absent, the user's)."""
    rows: list[Record] = []
    scale = 0.5 if post2021 else 1.0
    for model, shared in grid.cells():
        made, batch = MODELS[model], shared["batch_size"]
        both = made.forward + made.backward
        full, last = divmod(grid.epoch, batch)
        works = {
            "one": (both, step_s(model, shared, 1), "torch_profiler"),
            "batch": (batch * both, step_s(model, shared, batch), "torch_profiler"),
            "epoch": ((full * batch + last) * both, epoch_s(model, shared, grid.epoch), "torch_profiler"),
            "exact": (batch * both, step_s(model, shared, batch), "flopledger"),
        }
        told = [("theory", 3 * batch * made.forward, works["batch"][1], source) for source in theories]
        told += [(method, flop, time_s, source) for method, (flop, time_s, source) in works.items()]
        status = dict(grid.lost).get((shared["model"], batch), "ok")
        peak = PEAKS["fp32" if post2021 else shared["precision"]]
        for method, flop, time_s, source in told:
            common = {**shared, "method": method, "numerator_source": source}
            if status != "ok":
                names = ("datasheet", "user")
                rows += [Utilization(**common, denominator=name, status=status, reason="made up") for name in names]
                continue
            rows.append(Utilization(**common, denominator="user", status="unavailable", reason="no --peak-tflops"))
            ratio = scale * flop / time_s / peak
            rows.append(
                Utilization(
                    **common,
                    denominator="datasheet",
                    model_flop=flop,
                    time_s=time_s,
                    achieved_flop_per_s=flop / time_s,
                    peak_flop_per_s=peak,
                    utilization_ratio=ratio,
                    utilization_low_ratio=ratio / (1.02 + 0.1 / batch),
                    utilization_high_ratio=ratio / (0.98 - 0.1 / batch),
                )
            )
    return rows


def agreements(grid: Grid) -> list[Record]:
    """cleaned/agreement.csv: seven counters forward, four backward; a counter that cannot is a row with its reason."""
    rows: list[Record] = []
    for model, shared in grid.cells():
        made, batch, own = MODELS[model], shared["batch_size"], kept(shared, Agreement)
        totals = {"flopledger": (1.0, 1.0), "flop_counter_mode": (1.0, 1.0), "torch_profiler": (1.00036, 1.0)}
        for counter, total in zip(OF, made.counted, strict=True):
            products = None if counter == "pthflops" else min(1.0, total or 1.0)
            totals[counter] = (total, products)  # type: ignore[assignment]
        rows += [_agreement(own, counter, "forward", batch * made.forward, pair) for counter, pair in totals.items()]
        seen = made.seen / made.backward
        pairs = {
            "flopledger": (1.0, 1.0),
            "flop_counter_mode": (made.grouped, made.grouped),
            "torch_profiler": (seen, seen),
            "ptflops_aten": (seen / 2, seen / 2),
        }
        rows += [_agreement(own, counter, "backward", batch * made.backward, pair) for counter, pair in pairs.items()]
    return rows


def _agreement(own: dict[str, Any], counter: str, phase: str, exact: int, pair: Any) -> Agreement:
    total, products = pair
    if total is None:
        return Agreement(**own, counter=counter, phase=phase, exact_flop=exact, status="unavailable", reason="cannot")
    flop = None if products is None else round(products * exact)
    return Agreement(
        **own,
        counter=counter,
        phase=phase,
        native_value=round(total * exact),
        native_unit="flop",
        total_flop=round(total * exact),
        model_flop=flop,
        exact_flop=exact,
        difference_flop=None if flop is None else flop - exact,
        ratio=products,
        total_ratio=total,
    )


def works(grid: Grid, batch: int) -> dict[str, int]:
    """Work → images in it."""
    last = grid.epoch % batch
    return {"one": 1, "batch": batch, **({"last": last} if last else {}), "epoch": grid.epoch}


def profile_counts(grid: Grid) -> list[Record]:
    rows: list[Record] = []
    for model, shared in grid.cells():
        made, own = MODELS[model], kept(shared, ProfileCount)
        status = dict(grid.lost).get((shared["model"], shared["batch_size"]), "ok")
        for work, items in works(grid, shared["batch_size"]).items():
            for phase, exact, found in (
                ("forward", made.forward, made.forward),
                ("backward", made.backward, made.seen),
            ):
                told = {"source": "torch_profiler", "work": work, "items": items, "phase": phase}
                if status != "ok":
                    rows.append(ProfileCount(**own, **told, status=status, reason="made up"))
                    continue
                rows.append(
                    ProfileCount(
                        **own,
                        **told,
                        found_flop=items * found,
                        deduplicated_flop=items * found,
                        cleaned_flop=items * exact,
                        exact_flop=items * exact if work == "batch" else None,
                        operations=made.products,
                    )
                )
    return rows


def layers(model: str) -> list[tuple[str, str, int]]:
    """(module, name, forward FLOP) of each product, adding up to the model's; the last is a linear layer."""
    made = MODELS[model]
    rest = made.products - 1
    weights = [1 + (7 * i) % 5 for i in range(rest)]
    shares = [(made.forward - 2 * made.first) * weight // sum(weights) for weight in weights]
    shares[0] += made.forward - 2 * made.first - sum(shares)
    flop = [2 * made.first, *shares]
    depth = max(1, made.products // 6)
    modules = ["conv1", *(f"layer{1 + i // depth}.{i % depth}.conv{1 + i % 2}" for i in range(rest - 1)), "fc"]
    names = ["aten::conv2d"] * (made.products - 1) + ["aten::addmm"]
    return list(zip(modules, names, flop, strict=True))


def operations(grid: Grid, over: Sequence[int] = (), unknown: Sequence[int] = ()) -> list[Record]:
    """cleaned/profiled_operations.csv.gz. over: products whose forward was counted twice; unknown: without a count."""
    rows: list[Record] = []
    for model, shared in grid.cells():
        own = kept(shared, CleanedOperation)
        for work, items in works(grid, shared["batch_size"]).items():
            if work == "epoch":
                continue
            table = layers(model)
            for index, (module, name, flop) in enumerate(table):
                kind = "matmul" if name == "aten::addmm" else "convolution"
                found = 2 * flop if index in over else flop
                told = {"source": "torch_profiler", "work": work, "kind": kind, "module": module, "dtype": "float32"}
                forward = {"name": name, "index": index, "phase": "forward", "found_flop": items * found}
                cleaned = None if index in unknown else items * flop
                verdict = "unknown" if index in unknown else "over" if index in over else "right"
                rows.append(CleanedOperation(**own, **told, **forward, cleaned_flop=cleaned, verdict=verdict))
                needed = items * flop * (1 if index == 0 else 2)
                gap = kind == "convolution"
                rows.append(
                    CleanedOperation(
                        **own,
                        **told,
                        name="aten::convolution_backward" if gap else "aten::mm",
                        index=3 * len(table) - index,
                        phase="backward",
                        forward_index=index,
                        found_flop=None if gap else needed,
                        cleaned_flop=needed,
                        verdict="under" if gap else "right",
                        reason="nothing was counted" if gap else "",
                    )
                )
    return rows


KINDS = {
    "activation": (1.0, 0.02),
    "normalization": (1.24, 0.01),
    "pooling": (0.996, 0.001),
    "elementwise": (0.0, 0.004),
    "loss": (0.926, 1e-8),
}


def ratios(grid: Grid) -> list[Record]:
    """cleaned/ratios.csv: models and kinds, of our own count and of each profile, as found and as cleaned."""
    rows: list[Record] = []
    for model, shared in grid.cells():
        made, own = MODELS[model], kept(shared, Ratio)
        exact = made.backward / made.forward
        lost = dict(grid.lost).get((shared["model"], shared["batch_size"]), "ok")
        if lost != "ok":
            told = {"source": "torch_profiler", "level": "model", "name": "", "status": lost, "reason": "made up"}
            states = [(work, state) for work in ("one", "batch", "epoch") for state in ("found", "cleaned")]
            rows += [Ratio(**own, **told, work=work, state=state) for work, state in states]
            continue
        rows.append(_ratio(own, "flopledger", "", "cleaned", "model", "", made.forward, made.backward, exact))
        for kind, (ratio, share) in KINDS.items():
            forward = round(share * made.forward)
            rows.append(_ratio(own, "flopledger", "", "cleaned", "kind", kind, forward, round(ratio * forward), None))
        for work in ("one", "batch", "epoch"):
            for state, backward in (("found", made.seen), ("cleaned", made.backward)):
                rows.append(_ratio(own, "torch_profiler", work, state, "model", "", made.forward, backward, exact))
                last = layers(model)[-1][2]
                convolved = made.forward - last
                under = backward - 2 * last if state == "cleaned" else 0
                pair = (("convolution", convolved, under), ("matmul", last, 2 * last))
                rows += [_ratio(own, "torch_profiler", work, state, "kind", k, f, b, None) for k, f, b in pair]
    return rows


def _ratio(
    own: dict[str, Any],
    source: str,
    work: str,
    state: str,
    level: str,
    name: str,
    forward: int,
    backward: int,
    exact: float | None,
) -> Ratio:
    return Ratio(
        **own,
        source=source,
        work=work,
        state=state,
        level=level,
        name=name,
        forward_flop=forward,
        backward_flop=backward,
        ratio=backward / forward if forward else None,
        exact_ratio=exact,
    )


def work_times(grid: Grid) -> list[Record]:
    rows: list[Record] = []
    for model, shared in grid.cells():
        own = kept(shared, WorkTime)
        status = dict(grid.lost).get((shared["model"], shared["batch_size"]), "ok")
        for work, items in works(grid, shared["batch_size"]).items():
            if status != "ok":
                rows.append(WorkTime(**own, work=work, status=status, reason="made up"))
                continue
            time_s = epoch_s(model, shared, items) if work == "epoch" else step_s(model, shared, items)
            slow = time_s * 1.18 + (0.02 * items / shared["batch_size"] if work == "epoch" else 0.002)
            real = time_s * 1.01 if work == "epoch" and time_s < 20 else None
            rows.append(
                WorkTime(
                    **own,
                    work=work,
                    items=items,
                    steps=-(-items // shared["batch_size"]),
                    time_s=time_s,
                    low_s=0.97 * time_s,
                    high_s=1.03 * time_s,
                    profiled_time_s=slow,
                    profiled_low_s=0.9 * slow,
                    profiled_high_s=1.1 * slow,
                    overhead_ratio=slow / time_s - 1,
                    real_time_s=real,
                    real_low_s=None if real is None else 0.98 * real,
                    real_high_s=None if real is None else 1.02 * real,
                    agrees=None if real is None else True,
                )
            )
    return rows


FILES: dict[str, tuple[type[Record], Any]] = {
    "utilization.csv": (Utilization, fractions),
    "utilization_post2021.csv": (Utilization, lambda grid: fractions(grid, post2021=True, theories=("fvcore",))),
    "work_times.csv": (WorkTime, work_times),
    "cleaned/agreement.csv": (Agreement, agreements),
    "cleaned/profile_counts.csv": (ProfileCount, profile_counts),
    "cleaned/profiled_operations.csv.gz": (CleanedOperation, operations),
    "cleaned/ratios.csv": (Ratio, ratios),
}


def write(path: Path, rows: Sequence[Record], record: type[Record]) -> Path:
    """Rows as the report writes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    out = io.StringIO()
    writer = csv.DictWriter(out, header(record), lineterminator="\n")
    writer.writeheader()
    writer.writerows(row.to_row() for row in rows)
    content = out.getvalue().encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


def write_all(directory: Path, grid: Grid) -> Path:
    """Every table that figures are drawn from."""
    for name, (record, made) in FILES.items():
        write(directory / name, made(grid), record)
    return directory
