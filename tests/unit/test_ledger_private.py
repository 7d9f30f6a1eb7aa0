"""The private torch names that the ledger rests on. A failure here says what a new torch has changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from retainprof.capture import torch_private
from retainprof.capture.torch_private import (
    LEAF_SEQUENCE,
    NAMES,
    SavedTensor,
    next_sequence_number,
    packed,
    raw_slots,
    sequence_number,
    storage_reference,
)

CAPTURE = Path(torch_private.__file__).parent


def test_every_name_is_there() -> None:
    gone = [f"{name.name} ({name.purpose}; seen in {name.seen_in}, see {name.url})" for name in torch_private.missing()]
    assert not gone, f"torch {torch.__version__} no longer has: " + "; ".join(gone)


def test_a_missing_name_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(nn.Module, "_compiled_call_impl")
    assert [name.name for name in torch_private.missing()] == ["Module._compiled_call_impl"]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.name)
def test_every_name_is_explained(name: torch_private.PrivateName) -> None:
    assert name.url.startswith("https://github.com/pytorch/pytorch/")
    assert name.purpose
    assert name.seen_in


def test_saved_tensor_is_read_packed_and_is_none_once_freed() -> None:
    weight = torch.ones(3, requires_grad=True)
    out = weight.exp()
    (get,) = raw_slots(type(out.grad_fn))
    saved = get(out.grad_fn)
    assert type(saved) is SavedTensor
    data, hook = packed(saved)
    assert torch.equal(data, out)
    assert hook is None
    out.sum().backward()  # type: ignore[no-untyped-call]
    assert packed(get(out.grad_fn)) == (None, None)


def test_an_input_is_saved_with_its_history() -> None:
    """The module of a storage and the copies of parameters are found by it."""
    hidden = torch.ones(3, requires_grad=True) * 2
    out = hidden.sin()
    (get,) = raw_slots(type(out.grad_fn))
    assert packed(get(out.grad_fn))[0].grad_fn is hidden.grad_fn


def test_reading_a_plain_saved_name_unpacks() -> None:
    """The reason for the rule: if this fails, torch has become kinder, and the rule could go."""
    runs: list[int] = []
    weight = torch.ones(3, requires_grad=True)

    def forward(x: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return x.exp()

    out = checkpoint(forward, weight, use_reentrant=False)
    hasattr(out.grad_fn, "_saved_result")
    assert len(runs) == 2


def test_sequence_numbers_follow_the_forward() -> None:
    weight = torch.ones(3, requires_grad=True)
    start = next_sequence_number()
    assert next_sequence_number() == start
    first = weight.exp()
    second = first.sin()
    assert [sequence_number(t.grad_fn) for t in (first, second)] == [start, start + 1]
    assert next_sequence_number() == start + 2
    leaf = first.grad_fn.next_functions[0][0]  # type: ignore[union-attr]
    assert sequence_number(leaf) == LEAF_SEQUENCE


def test_storage_reference_keeps_no_bytes() -> None:
    tensor = torch.ones(1000)
    reference = storage_reference(tensor.untyped_storage())
    assert not reference.expired()  # type: ignore[no-untyped-call]
    del tensor
    assert reference.expired()  # type: ignore[no-untyped-call]


RECURSIVE = """
import torch
y = torch.ones(1, requires_grad=True)
for _ in range(200_000):
    y = y.tanh()
node = y.grad_fn
while node is not None:
    node = node.next_functions[0][0] if node.next_functions else None
del y
"""


def test_nodes_seen_from_python_free_each_other_by_recursion() -> None:
    """The reason for ``cushion``: if this fails, torch frees such chains in a loop again, and it could go."""
    assert subprocess.run([sys.executable, "-c", RECURSIVE], capture_output=True, check=False).returncode < 0


@pytest.mark.parametrize("path", [*CAPTURE.glob("ledger*.py"), CAPTURE / "modules.py"], ids=lambda path: path.stem)
def test_no_other_module_spells_a_private_name(path: Path) -> None:
    text = path.read_text()
    for word in (
        "torch._C",
        "_raw_saved_",
        ".unpack_hook",
        "._sequence_nr",
        "_cdata",
        "_compiled_call_impl",
        "._saved_",
    ):
        lines = [line for line in text.splitlines() if word in line and "``" not in line]
        assert lines == [], f"{path.name} spells {word}"
