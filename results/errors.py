"""Defines the faults of measuring besides `ValueError` (the caller's mistake), and rewords libraries' messages.

A command turns `Unavailable` into a row with a reason and goes on; `Inconsistent` stops the one analysis that met it.
Messages of torch name its internals (fake and meta tensors, schemas, C++ checks). `plain_message` rewords the messages
that a model file can cause (MESSAGES) for the author of the model, and leaves others as they are.
"""

import re


class Unavailable(Exception):
    """Something this machine or installation does not offer: no GPU, no permission, no such counter."""


class DeviceLost(Unavailable):
    """The device is gone for good, or must be reset: nothing more can be measured on it in this session."""


class Inconsistent(Exception):
    """The data contradict each other, so that no number can be given from them."""


class StoreFault(Exception):
    """The run directory could not be written; whole rows are kept and the run can be resumed."""


def one_line(text: str, longest: int) -> str:
    """Put the text on one line of at most `longest` characters, cut between two words.

    A word that fills more than half of the line (a path, a mangled name) is cut inside.
    """
    line = " ".join(text.split())
    if len(line) <= longest:
        return line
    start, _, _ = line[: longest - 1].rpartition(" ")
    return f"{start} …" if len(start) >= longest // 2 else f"{line[: longest - 1]}…"


VALUES = "its control flow depends on a value that is read from a tensor (.item(), .tolist(), or an if on a tensor)"

SIZES = "the size of a tensor depends on values (a mask as an index, nonzero, unique)"

NUMPY = "a part of it is computed by NumPy, whose operations are not recorded"
DEVICES = r"it has tensors on \2 and on \3: expected a forward that creates its tensors on the device of its inputs"

MESSAGES: tuple[tuple[str, str], ...] = (
    (r"fake tensors cannot run aten\._local_scalar_dense(\.default)?", VALUES),
    (r"Tensor\.item\(\) cannot be called on meta tensors", VALUES),
    (r"fake tensors cannot run aten\.(nonzero|_unique2?|unique_dim|masked_select)(\.\w+)?", SIZES),
    (r"work that is not shown \(torch\.Tensor\.numpy\):[^()]*(\(\) is not supported for [a-z ]*\.)?", NUMPY),
    (r"\.numpy\(\) is not supported for tensor subclasses\.", NUMPY),
    (
        r"(\w+Error: )?Expected all tensors to be on the same device, but found at least two[^,]*, (\S+) and (\S+?)!",
        DEVICES,
    ),
    # of torch 2.11:
    (
        r"(\w+Error: )?Unhandled FakeTensor Device Propagation for \S+, found two different devices (\S+), (\S+)",
        DEVICES,
    ),
    (
        r"There was no rule registered for HigherOrderOperator (\w+) and mode .*",
        r"the operator \1 takes functions as arguments and has no formula",
    ),
    (r"<([\w.]+) object at 0x[0-9a-f]+>", r"\1"),
    (r"(\w+Error: )?optimizer got an empty parameter list", "expected a parameter that is trained, got none"),
    (
        r"(\w+Error: )?storage_device\.is_cpu\(\).*",
        "the size of its inputs is not known beforehand: expected tensors with one size for the whole batch, not "
        "nested or sparse ones",
    ),
    (
        r'(\w+Error: )?Module \[(\w+)\] is missing the required "forward" function',
        r"\2 has no forward: expected a module with forward(inputs)",
    ),
    (
        r"(\w+Error: )?a and b must have same reduction dim, but got (\[[\d, ]+\]) X (\[[\d, ]+\])\.?",
        r"matrices of sizes \2 and \3 cannot be multiplied: expected inputs of the size that the model's layers take",
    ),
    (
        r"(\w+Error: )?Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; "
        r"but got (torch\.\w+) instead( \(while checking arguments for embedding\))?",
        r"an embedding takes whole numbers, got \2: name their type and range, such as --input 128:int64:50257",
    ),
    (
        r"(\w+Error: )?(?:addmm: )?mat1 and mat2 shapes cannot be multiplied \((\S+) and (\S+)\)",
        r"matrices of sizes \2 and \3 cannot be multiplied: expected inputs of the size that the model's layers take",
    ),
)
"""(pattern of a library's message, replacement)."""


def plain_message(text: str) -> str:
    """Replace a library's own messages in the text by those of MESSAGES."""
    for pattern, replacement in MESSAGES:
        text = re.sub(pattern, replacement, text)
    return text


def depends_on_data(text: str) -> bool:
    """Return whether a message of MESSAGES says that a model needs the values of its inputs."""
    return any(message in text for message in (VALUES, SIZES, NUMPY))
