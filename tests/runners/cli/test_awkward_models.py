"""Injected fault: a model file that cannot be used is one line without names of torch's own parts."""

import re
from pathlib import Path

import pytest

from runners import footprint
from runners import formula as formula_command
from tests.support.fakes.commands import running

HEAD = "import torch\nfrom torch import nn\n\n\n"
NET = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x):
        {body}


def build():
    return Net(), (torch.randn(2, 8),)
"""

FORWARDS = {
    "item": "return self.layer(x) if x.sum().item() > 0 else self.layer(x) * 2",
    "flow": "return self.layer(x if x.mean() > 0 else -x)",
    "tolist": "return self.layer(x) * x.sum(1).tolist()[0]",
    "array": "return self.layer(torch.from_numpy(x.detach().numpy() * 2))",
    "mask": "return self.layer(x[x[:, 0] > 0])",
    "cuda": "return self.layer(x.cuda()).cpu()",
    "whole": "return self.layer(x).argmax(-1)",
    "nothing": "self.layer(x)",
    "raises": "raise KeyError('what')",
}
BUILDS = {
    "missing": "import nosuchlibrary\n\n\ndef build():\n    return nn.Linear(8, 4), (torch.randn(2, 8),)\n",
    "no_return": "def build():\n    nn.Linear(8, 4)\n",
    "no_inputs": "def build():\n    return nn.Linear(8, 4)\n",
    "shapes": "def build():\n    return nn.Linear(8, 4), (torch.randn(2, 9),)\n",
    "exits": "def build():\n    raise SystemExit(3)\n",
    "argument": "def build(width):\n    return nn.Linear(width, 4), (torch.randn(2, width),)\n",
    "raising": "def build():\n    raise RuntimeError('no weights at\\n/data/x')\n",
    "list": "def build():\n    return [nn.Linear(8, 4)], (torch.randn(2, 8),)\n",
    "words": "def build():\n    return nn.Linear(8, 4), 'hello'\n",
    "no_parameters": "def build():\n    return nn.ReLU(), (torch.randn(2, 8),)\n",
    "no_forward": "def build():\n    return nn.ModuleList([nn.Linear(8, 4)]), (torch.randn(2, 8),)\n",
}
SOURCES = {**{name: HEAD + NET.format(body=body) for name, body in FORWARDS.items()},
           **{name: HEAD + source for name, source in BUILDS.items()}}  # fmt: skip

SAID = {
    "item": "read from a tensor", "flow": "read from a tensor", "tolist": "read from a tensor", "array": "by NumPy",
    "mask": "depends on values", "cuda": "on the device of its inputs", "whole": "depends on a parameter",
    "nothing": "depends on a parameter", "raises": "KeyError: 'what'", "missing": "nosuchlibrary",
    "no_return": "expected a torch.nn.Module", "no_inputs": "add --input", "shapes": "cannot be multiplied",
    "exits": "expected it to return a model", "argument": "it needs 'width'", "raising": "no weights at /data/x",
    "list": "expected a torch.nn.Module", "words": "expected inputs", "no_parameters": "expected a parameter",
    "no_forward": "has no forward",
}  # fmt: skip
"""Name → a part of what is said; of those that footprint runs on real tensors formula says it."""

ON_REAL_TENSORS = {"item", "flow", "tolist", "array", "mask"}

LEAKS = re.compile(
    r"fake tensor|FakeTensor|meta tensor|aten\.|subclass|is_cpu|INTERNAL|Traceback|_local_scalar|mat1|: a and b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("which", ["footprint", "formula"])
def test_one_line_says_what_was_expected(
    name: str, which: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / f"{name}_net.py").write_text(SOURCES[name])
    model = f"{tmp_path / f'{name}_net.py'}:build"
    if which == "footprint":
        code, out, err = running(footprint.main, capsys)(model, "--batch-size", 2)
    else:
        code, out, err = running(formula_command.main, capsys)(model, "--symbols", "batch")
    told = [line for line in (*out.split("note:")[1:], err) if LEAKS.search(line)]
    assert not told
    if which == "footprint" and name in ON_REAL_TENSORS:
        assert (code, err) == (0, "")
        assert SAID[name] in " ".join(out.split())
    else:
        assert code in (1, 2)
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert SAID[name] in err
    if which == "formula" and name in ON_REAL_TENSORS:
        assert "answers for one batch" in err
