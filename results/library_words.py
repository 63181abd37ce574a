"""What torch says of a model in words of the model's author: which of its lines is in the way, and what was expected.

Messages of a library name its own parts (fake and meta tensors, schemas, C++ checks). Each that a model file can cause
has a row here; what is not here stays as the library said it.
"""

import re

VALUES = "its course depends on a value that is read from a tensor (.item(), .tolist(), or an if on a tensor)"
SIZES = "the size of a tensor depends on values (a mask as an index, nonzero, unique)"
NUMPY = "a part of it is calculated by NumPy, which is not seen"

WORDS: tuple[tuple[str, str], ...] = (
    (r"fake tensors cannot run aten\._local_scalar_dense(\.default)?", VALUES),
    (r"Tensor\.item\(\) cannot be called on meta tensors", VALUES),
    (r"fake tensors cannot run aten\.(nonzero|_unique2?|unique_dim|masked_select)(\.\w+)?", SIZES),
    (r"work that is not shown \(torch\.Tensor\.numpy\):[^()]*(\(\) is not supported for [a-z ]*\.)?", NUMPY),
    (r"\.numpy\(\) is not supported for tensor subclasses\.", NUMPY),
    (
        r"(\w+Error: )?Expected all tensors to be on the same device, but found at least two[^,]*, (\S+) and (\S+?)!",
        r"it puts tensors on \2 and others on \3: expected a forward that makes its tensors where its inputs are",
    ),
    (
        r"There was no rule registered for HigherOrderOperator (\w+) and mode .*",
        r"the operator \1 takes functions and has no count",
    ),
    (r"<([\w.]+) object at 0x[0-9a-f]+>", r"\1"),
    (r"(\w+Error: )?optimizer got an empty parameter list", "expected a parameter that is trained, got none"),
    (
        r"(\w+Error: )?storage_device\.is_cpu\(\).*",
        "its inputs have no size that is known beforehand: expected tensors with one size for the whole batch, not "
        "nested or sparse ones",
    ),
    (
        r'(\w+Error: )?Module \[(\w+)\] is missing the required "forward" function',
        r"\2 has no forward: expected a module with forward(inputs)",
    ),
    (
        r"(\w+Error: )?a and b must have same reduction dim, but got (\[[\d, ]+\]) X (\[[\d, ]+\])\.?",
        r"sizes \2 and \3 make no product: expected inputs of the size that the model's layers take",
    ),
    (
        r"(\w+Error: )?Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; "
        r"but got (torch\.\w+) instead( \(while checking arguments for embedding\))?",
        r"an embedding takes whole numbers, got \2: name their type and range, such as --input 128:int64:50257",
    ),
    (
        r"(\w+Error: )?(?:addmm: )?mat1 and mat2 shapes cannot be multiplied \((\S+) and (\S+)\)",
        r"sizes \2 and \3 make no product: expected inputs of the size that the model's layers take",
    ),
)
"""(what a library says, as a pattern; what is said instead)."""


def plain_words(text: str) -> str:
    """The text with a library's own messages in the words above."""
    for pattern, words in WORDS:
        text = re.sub(pattern, words, text)
    return text


def depends_on_data(text: str) -> bool:
    """Whether the plain words say that a model cannot be followed without the values of its inputs."""
    return any(words in text for words in (VALUES, SIZES, NUMPY))
