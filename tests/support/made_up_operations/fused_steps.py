"""Steps made by hand for ideal fusion: operations on named tensors of float32, with the storages they are in."""

from math import prod

from results.records.operations import Operation, Storage

FLOAT = 4
"""Bytes of an element."""


class Step:
    """A step as it is written down. Tensors go by name, and a view by another name of the same storage."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.phase = "forward"
        self._forms: dict[str, tuple[int, ...]] = {}
        self._storage: dict[str, int] = {}
        self._kept: set[int] = set()
        self._room: dict[int, int] = {}

    def there(self, **forms: tuple[int, ...]) -> None:
        """Tensors that were there before the step and stay: weights, the batch, an optimizer's state."""
        for name, form in forms.items():
            self._new(name, form)
            self.keep(name)

    def keep(self, *names: str) -> None:
        """What outlives the step."""
        self._kept |= {self._storage[name] for name in names}

    def run(
        self, name: str, reads: str = "", makes: dict[str, tuple[int, ...]] | None = None, changes: str = ""
    ) -> int:
        """One operation: names of what it reads, forms of what it makes, what it writes in place (and reads, unless
        it overwrites). Returns its index."""
        inputs = [*dict.fromkeys((*changes.split(), *reads.split()))]
        index = len(self.operations)
        made = makes or {}
        for new, form in made.items():
            self._new(new, form)
        written = [*made, *changes.split()]
        returned = [*made] or changes.split()
        self.operations.append(
            Operation(
                index=index,
                name=f"aten.{name}",
                kind="",
                phase=self.phase,
                module="",
                sequence_nr=None,
                forward_index=None,
                input_names=tuple("self" if i == 0 else f"argument{i}" for i in range(len(inputs))),
                input_shapes=tuple(self._forms[each] for each in inputs),
                input_dtypes=("float32",) * len(inputs),
                output_shapes=tuple(self._forms[each] for each in returned),
                output_dtypes=("float32",) * len(returned),
                attributes={},
                reads=tuple(self._storage[each] for each in inputs),
                writes=tuple(dict.fromkeys(self._storage[each] for each in written)),
            )
        )
        return index

    def view(self, of: str, name: str, form: tuple[int, ...]) -> int:
        """A view: another name and form for the same storage."""
        self._forms[name], self._storage[name] = form, self._storage[of]
        index = self.run("view", of)
        last = self.operations[-1]
        self.operations[-1] = Operation(
            **{**vars(last), "output_shapes": (form,), "output_dtypes": ("float32",), "writes": last.reads}
        )
        return index

    @property
    def storages(self) -> list[Storage]:
        """The ledger. When what is not kept died says nothing to fusion: 0."""
        return [
            Storage(number, size, "temporary", -1, None if number in self._kept else 0)
            for number, size in self._room.items()
        ]

    def _new(self, name: str, form: tuple[int, ...]) -> None:
        number = len(self._room)
        self._forms[name], self._storage[name] = form, number
        self._room[number] = FLOAT * prod(form)
