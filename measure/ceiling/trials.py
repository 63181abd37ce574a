"""Plans the kernels and copies that are timed to find a ceiling, the highest rate of a device. It imports no torch.

`shapes` and `sweep` take the kind of device and its probed rate, and return `Trial`s, kernels with their FLOP. `moves`
takes the sizes of cache and memory, and returns `Move`s, copies with their bytes. `shapes` has the few kernels that a
sweep's denominator needs. `sweep` adds matrix products of other sides (also near powers of two), flat ones and
batches of small ones. It also adds both gradients of the first two convolutions, in both layouts. The square product's
side is a power of two, so that one kind of device gets one set of shapes. A convolution's FLOP are its direct
multiply-adds. Not claimed: that the best shape of a device is among these shapes.
"""

import math
import re
from dataclasses import dataclass, replace

from analysis.devices.precisions import Precision
from analysis.operators import products as operators_products
from results.records.cell import Ceiling

CALL_S = {"cpu": 0.01, "cuda": 0.01}
"""Intended time of one call: far above a launch (10 µs) and a clock tick, far below the budget."""
SIDES = {"cpu": (1024, 2048), "cuda": (1024, 16384)}
"""Smallest and largest side of the square product. Below 1024 a CPU's threads mostly wait for each other; an H200's
bf16 rate levels off at 8192."""
MOST_IMAGES = 512  # of a convolution's batch

CONVOLUTIONS = ((256, 28), (512, 14), (128, 28), (64, 56))
"""(channels, height = width), the likeliest to be fast first."""
PARTS = ("forward", "grad_input", "grad_weight")
LAYOUTS = ("channels_last", "channels_first")
ESSENTIAL = 4 + len(CONVOLUTIONS) * len(LAYOUTS)
"""Number of trials that `shapes` returns."""

SQUARE, NEAR, AREA, DEEP, BATCH = "square", "near", "area", "deep", "batch"
"""Families of products: squares with powers of 2 as sides; squares near these; large area and small depth; deep; many
small ones."""

MEMORY, CACHE = "memory", "cache"
"""Families of copies: of operands so large that no cache helps, and of smaller ones."""
BEYOND = 4
"""An operand this many times as large as the last cache is taken to lie in memory."""
CACHE_IF_UNKNOWN_BYTES = 64 << 20
"""Size that is assumed of a cache of unknown size."""
LEAST_BYTES = 1 << 20  # of an operand
MOST_BYTES = {"cpu": 1 << 28, "cuda": 1 << 32}
MEMORY_SHARE = 12
"""An operand is at most 1/12 of the memory, so the three of a triad are at most a quarter. This limit is needed
because a virtual machine may show the last cache of its whole host (480 MiB with 24 GiB of memory were seen)."""
ELEMENT_BYTES = 4
OPERANDS = {"copy": 2, "triad": 3}
"""Operation → how many operands a call moves: b = a; a = b + s · c."""

FP8 = "fp8"
"""Unit of a product with operands of float8_e4m3fn and a result of bfloat16. No precision here trains in it."""

OWN_PEAK_S = 2.0
"""How long a meter searches for the fastest kernel of a CPU, whose peak no datasheet has; 0: not at all."""

SPENT = "the time for ceilings was spent before this shape"


@dataclass(frozen=True)
class Trial:
    """One kernel to time. sizes: (m, n, k) of a product; (images, channels, height = width) of a convolution.

    part: forward, or grad_input, grad_weight of the convolution. batch: products in one call. kernel: height = width of
    a convolution's kernels, odd. unit: FP8, or empty for that of the precision.
    """

    operation: str
    sizes: tuple[int, int, int]
    layout: str = ""
    part: str = "forward"
    family: str = ""
    batch: int = 1
    kernel: int = 3
    unit: str = ""

    @property
    def flop(self) -> int:
        if self.operation == "matmul":
            return int(operators_products.matmul(*self.sizes, self.batch).model_flop)
        images, channels, side = self.sizes
        # padded by half a kernel: the output is as large as the input; each gradient costs what the forward pass does
        weight = (channels, channels, self.kernel, self.kernel)
        return int(operators_products.convolution(images * channels * side**2, weight).model_flop)

    @property
    def shape(self) -> str:
        if self.operation == "matmul":
            text = "x".join(map(str, self.sizes))
            return text if self.batch == 1 else f"{self.batch} of {text}"
        images, channels, side = self.sizes
        text = f"{images}x{channels}x{side}x{side}, {channels} {self.kernel}x{self.kernel} kernels"
        return text if self.part == "forward" else f"{self.part} of {text}"


@dataclass(frozen=True)
class Move:
    """One copy or triad to time. operand_bytes: of each of its float32 operands."""

    operation: str
    operand_bytes: int
    family: str

    @property
    def elements(self) -> int:
        return self.operand_bytes // ELEMENT_BYTES

    @property
    def moved_bytes(self) -> int:
        """Bytes of a call, each operand read or written once; what a cache fetches before it writes is not counted."""
        return OPERANDS[self.operation] * self.operand_bytes

    @property
    def shape(self) -> str:
        return f"{self.operand_bytes >> 20} MiB an operand"


def shapes(kind: str, rate_flop_per_s: float) -> list[Trial]:
    """Return kernels for a device that multiplies at about this rate; the likeliest to be best come first.

    Products of equal FLOP: a square one, two of large area and small depth, a deep one. Convolutions: 3 × 3, 64 to 512
    channels.
    """
    side = _side(kind, rate_flop_per_s)
    square_flop = operators_products.matmul(side, side, side).model_flop
    products = [
        Trial("matmul", sizes, family=family)
        for family, sizes in (
            (SQUARE, (side, side, side)),
            (AREA, (2 * side, 2 * side, side // 4)),
            (AREA, (4 * side, 2 * side, side // 8)),
            (DEEP, (side // 2, side // 2, 4 * side)),
        )
    ]
    convolutions: list[Trial] = []
    for channels, width in CONVOLUTIONS:
        image_flop = Trial("convolution", (1, channels, width)).flop
        images = min(max(_power_of_two(square_flop / image_flop), 1), MOST_IMAGES)  # about the square product's work
        convolutions += [Trial("convolution", (images, channels, width), layout) for layout in LAYOUTS]
    return [*products[:1], *convolutions[:4], *products[1:], *convolutions[4:]]


def sweep(kind: str, rate_flop_per_s: float) -> list[Trial]:
    """Return `shapes`, then the further kernels that `runners.ceiling` tries; none twice."""
    side = _side(kind, rate_flop_per_s)
    first = shapes(kind, rate_flop_per_s)
    squares = [(SQUARE, (s, s, s), 1) for s in (side // 8, side // 4, side // 2, 2 * side)]
    near_sides = [side - 8, side + 8, side - 1, side + 1, side // 4 * 3, side // 2 * 3]
    near = [(NEAR, (s, s, s), 1) for s in near_sides]
    flat = [(AREA, (4 * side, side // 2, side // 2), 1), (AREA, (side // 2, 4 * side, side // 2), 1)]
    batches = [(BATCH, (side // 2,) * 3, 8), (BATCH, (side // 4,) * 3, 64), (BATCH, (side // 8,) * 3, 512)]
    products = [
        Trial("matmul", (m, n, k), family=family, batch=batch)
        for family, (m, n, k), batch in (*squares, *near, *flat, *batches)
    ]
    gradients = [
        replace(trial, part=part)
        for trial in first
        if trial.operation == "convolution" and trial.sizes[1:] in CONVOLUTIONS[:2]
        for part in PARTS[1:]
    ]
    return list(dict.fromkeys((*first, *gradients, *products)))


def moves(kind: str, cache_bytes: int | None, memory_bytes: int) -> list[Move]:
    """Return copies and triads: of three sizes beyond the last cache, then of smaller sizes from 1 MiB, each 4 times
    the one before.

    cache_bytes: None where it is not known. memory_bytes: of the device. If even the first size beyond the cache is
    above MOST_BYTES or the memory's share, the only such size is BEYOND times the cache, if the share allows it.
    """
    share = memory_bytes // MEMORY_SHARE
    most = min(MOST_BYTES[kind], share)
    least = BEYOND * (cache_bytes or CACHE_IF_UNKNOWN_BYTES)
    beyond = 1 << (least - 1).bit_length()
    large = [size for size in (beyond, 2 * beyond, 4 * beyond) if size <= most] or [least] * (least <= share)
    small = [size for i in range(16) if (size := LEAST_BYTES << 2 * i) < min(beyond, most + 1)]
    return [
        Move(operation, size, family)
        for family, sizes in ((MEMORY, large), (CACHE, small))
        for size in sizes
        for operation in OPERANDS
    ]


def titled(blank: Ceiling, trial: Trial, precision: Precision) -> Ceiling:
    """Return the row of a kernel that is not timed yet. blank: a row of the device and precision."""
    unit = precision.matmul_unit if trial.operation == "matmul" else precision.convolution_unit
    return replace(
        blank,
        unit=trial.unit or unit,
        operation=trial.operation,
        shape=trial.shape,
        layout=trial.layout,
        family=trial.family,
    )


def trial_of(row: Ceiling) -> Trial:
    """Return the kernel of a row. Raises ValueError for a shape that no kernel has."""
    product = re.fullmatch(r"(?:(\d+) of )?(\d+)x(\d+)x(\d+)", row.shape)
    convolution = re.fullmatch(r"(?:(grad_\w+) of )?(\d+)x(\d+)x(\d+)x\4, \3 (\d+)x\5 kernels", row.shape)
    if row.operation == "matmul" and product:
        batch, *sizes = (int(number or 1) for number in product.groups())
        return Trial("matmul", (sizes[0], sizes[1], sizes[2]), batch=batch, unit=FP8 if row.unit == FP8 else "")
    if row.operation == "convolution" and convolution:
        images, channels, side, kernel = map(int, convolution.groups()[1:])
        part = convolution.group(1) or "forward"
        return Trial("convolution", (images, channels, side), row.layout, part, kernel=kernel)
    raise ValueError(f"expected the shape of a product or a convolution, got {row.operation} {row.shape!r}")


def _side(kind: str, rate_flop_per_s: float) -> int:
    """Return the side of the square product that takes about CALL_S."""
    least, most = SIDES[kind]
    return min(max(_power_of_two((rate_flop_per_s * CALL_S[kind] / 2) ** (1 / 3)), least), most)


def _power_of_two(value: float) -> int:
    return 1 << max(0, round(math.log2(value)))
