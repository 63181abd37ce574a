"""Definition, command, injected fault: the public names, what their import loads, their examples and refusals."""

import doctest
import importlib
import subprocess
import sys

import pytest

import flopledger


@pytest.mark.parametrize("name", flopledger.__all__)
def test_each_name_is_there_and_says_what_it_is(name):
    value = getattr(flopledger, name)
    assert value.__doc__
    assert name in dir(flopledger)


def test_importing_loads_no_library():
    code = (
        "import sys, time; a = time.perf_counter(); import flopledger; flopledger.peak('Tesla V100-SXM2-16GB');"
        "print(sorted({'torch', 'numpy', 'pandas', 'sympy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


WITH_EXAMPLES = (
    "measure.meter.meter",
    "measure.step",
    "analysis.devices.format_peaks",
    "runners.formula",
)


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_are_true(module):
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0


def test_peaks_are_dense_and_sparse_twice_that():
    dense = flopledger.peak("NVIDIA H100 80GB HBM3", "bfloat16")
    sparse = flopledger.peak("NVIDIA H100 80GB HBM3", "torch.bfloat16", sparsity=True)
    # H100 SXM's datasheet: bfloat16 1,979 TFLOPS "with sparsity", so 989.5 without (printed 989.4)
    assert dense.flop_per_s == pytest.approx(1979e12 / 2, rel=1e-3)
    assert sparse.flop_per_s == 2 * dense.flop_per_s
    assert flopledger.peak("NVIDIA H100 80GB HBM3", "fp32", sparsity=True) is None
    assert flopledger.peak("Tesla V100-SXM2-16GB", "fp16", sparsity=True) is None  # before Ampere
    assert flopledger.peak("Tesla V100-SXM2-16GB", "bf16") is None


def test_an_unknown_device_or_dtype_is_named():
    with pytest.raises(ValueError, match="got 'H10000', nearest "):
        flopledger.peak("H10000")
    with pytest.raises(ValueError, match="got 'fp31'"):
        flopledger.peak("NVIDIA H100 80GB HBM3", "fp31")


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("synthetic_matmull", {}, "nearest: synthetic_matmul"),
        ("synthetic_matmul", {"symbols": ["batc"]}, "got 'batc', nearest batch"),
        ("synthetic_matmul", {"optimizer": "sdg"}, "got 'sdg', nearest sgd"),
        ("synthetic_matmul", {"width": 0}, "expected 1 or more, got 0"),
        ("synthetic_matmul", {"batch_size": 0}, "batch_size: expected a whole number of at least 1, got '0'"),
        ("synthetic_matmul", {"hight": 3}, "has no hight"),
        ("synthetic_matmul", {"input": 3}, "expected a size, got input, which is set by --input"),
        ("--help", {}, "--help"),
    ],
)
def test_a_formula_of_what_there_is_not_is_one_line(model, options, words):
    with pytest.raises(ValueError, match=r"\A.*\Z") as fault:
        flopledger.formula(model, **options)
    assert words in str(fault.value)


def test_formulas_have_the_counts_of_a_step():
    """Derived by hand: d layers of b × w by w × w are d products forward, and 2·d − 1 backward, as the first layer's
    input needs no gradient; a product is 2·b·w² FLOP."""
    formulas = flopledger.formula("synthetic_matmul", ["batch", "width", "depth"])
    for batch, width, depth in ((6, 48, 3), (1, 7, 1), (130, 5, 9)):
        values = formulas.at(batch=batch, width=width, depth=depth)
        assert values["model_flop"] == (3 * depth - 1) * 2 * batch * width**2
        assert values["parameters"] == depth * width**2
    with pytest.raises(ValueError, match="got 'widht', nearest width"):
        formulas.at(widht=3)
