"""The kernel table of a first and a later call, on tables written by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retainprof.analysis.kernels import diff, merge, only_accumulation, reason, unsteady
from retainprof.records import Accumulate, KernelRow


def _row(name: str, count: int = 1, ns: int = 10, nbytes: int = 0, shapes: str = "", leaf: bool = True) -> KernelRow:
    return KernelRow(name=name, shapes=shapes, count=count, self_ns=ns, bytes=nbytes, leaf=leaf)


MM = _row("aten::mm", 5, 500, 4096, "[[8, 4], [4, 8]]")
ADDS = [_row("aten::add_", 4, 40, shapes="[[8]]"), _row("aten::add_", 2, 90, shapes="[[8, 8]]")]


def test_status_by_count_and_bytes() -> None:
    first = [MM, _row("aten::relu"), _row("aten::sum", 1, 5, 8), _row("aten::detach", 6)]
    later = [MM, _row("aten::relu", ns=10_000), _row("aten::sum", 1, 5, 16), *ADDS]
    found = {(row.name, row.shapes): row.status for row in diff(first, later)}
    assert found == {
        ("aten::mm", MM.shapes): "same",
        ("aten::relu", ""): "same",  # time alone changes nothing
        ("aten::sum", ""): "changed",
        ("aten::detach", ""): "only_first",
        ("aten::add_", "[[8]]"): "only_later",
        ("aten::add_", "[[8, 8]]"): "only_later",
    }


def test_shapes_are_part_of_the_name() -> None:
    rows = diff([_row("aten::mm", shapes="[[1]]")], [_row("aten::mm", shapes="[[2]]")])
    assert {(row.shapes, row.status) for row in rows} == {("[[1]]", "only_first"), ("[[2]]", "only_later")}


def test_order_is_differences_leaves_time() -> None:
    first = [MM, _row("aten::linear", 1, 9_000, leaf=False)]
    rows = diff(first, [MM, *ADDS, _row("aten::t", 1, 5)])
    assert [row.name for row in rows] == ["aten::add_", "aten::add_", "aten::t", "aten::linear", "aten::mm"]
    assert [row.later_self_ns for row in rows[:2]] == [90, 40]


def test_equal_rows_of_one_call_are_added_up() -> None:
    (row,) = diff([_row("aten::mm", 2, 10, 4), _row("aten::mm", 3, 20, 8)], [_row("aten::mm", 5, 99, 12)])
    assert (row.first_count, row.first_self_ns, row.first_bytes, row.status) == (5, 30, 12, "same")


def test_merge_takes_medians_over_steps() -> None:
    steps = [[_row("a", 2, 30), _row("b", 1, 1)], [_row("a", 2, 10)], [_row("a", 2, 20), _row("c", 1, 7)]]
    assert merge(steps) == (_row("a", 2, 20),)
    assert unsteady(steps) == ("b", "c")
    assert unsteady([[MM], [MM]]) == ()
    assert merge([]) == ()


def test_reason_of_additions_into_grad() -> None:
    """The seed's case: six steals in call 0, six in-place additions in call 1, all else equal."""
    rows = diff([MM, _row("detach", 4), _row("detach", 2, shapes="[[8]]")], [MM, *ADDS])
    text = reason(rows, Accumulate(stolen=6), Accumulate(added=6), call=1)
    assert only_accumulation(rows, Accumulate(stolen=6), Accumulate(added=6))
    assert text == "call 1 adds into .grad: 6 x aten::add_ that call 0 does not run (it stole 6)"


def test_reason_of_device_additions_names_no_kernel() -> None:
    rows = diff([MM], [MM, _row("elementwise_kernel", 6, 60)])
    text = reason(rows, Accumulate(copied=6), Accumulate(added=6), call=2)
    assert text == (
        "call 2 adds into .grad 6 times, which call 0 does not run (it copied 6); "
        "otherwise runs 6 kernels more and 0 fewer than call 0, above all elementwise_kernel"
    )


def test_detaches_and_additions_of_the_model_are_not_put_down_to_grad() -> None:
    """Three detaches where one gradient was stolen: two are the model's own, and nobody knows which."""
    rows = diff([MM, _row("detach", 3)], [MM, _row("aten::add_", 1)])
    text = reason(rows, Accumulate(stolen=1), Accumulate(added=1), call=1)
    assert not only_accumulation(rows, Accumulate(stolen=1), Accumulate(added=1))
    assert text == (
        "call 1 adds into .grad: 1 x aten::add_ that call 0 does not run (it stole 1); "
        "otherwise runs 0 kernels more and 3 fewer than call 0, above all detach"
    )
    assert not only_accumulation(diff([MM], [MM]), Accumulate(), Accumulate())


def test_reason_of_equal_calls() -> None:
    """Rows of a Jacobian: nothing is accumulated, the same kernels run."""
    rows = diff([MM], [MM])
    assert reason(rows, Accumulate(), Accumulate(), call=1) == "call 1 runs the same kernels as call 0"
    assert reason(rows, None, None, call=1) == "call 1 runs the same kernels as call 0"
    assert reason((), None, None, call=1) == ""


def test_reason_of_another_branch() -> None:
    rows = diff([MM, _row("aten::_log_softmax_backward_data", ns=3)], [MM, _row("aten::mul", 3, 9)])
    text = reason(rows, Accumulate(stolen=2), Accumulate(stolen=2), call=1)
    assert text == "call 1 otherwise runs 3 kernels more and 1 fewer than call 0, above all aten::mul"


ROWS = st.lists(
    st.builds(
        KernelRow,
        name=st.sampled_from("abc"),
        shapes=st.sampled_from(["", "[1]"]),
        count=st.integers(1, 5),
        self_ns=st.integers(0, 100),
        bytes=st.integers(0, 3),
    ),
    max_size=6,
)


@given(ROWS, ROWS)
def test_diff_loses_nothing_and_turns_over(first: list[KernelRow], later: list[KernelRow]) -> None:
    rows, back = diff(first, later), diff(later, first)
    assert sum(row.first_count for row in rows) == sum(row.count for row in first)
    assert sum(row.later_self_ns for row in rows) == sum(row.self_ns for row in later)
    turned = {"only_first": "only_later", "only_later": "only_first"}
    assert {(r.name, r.shapes): turned.get(r.status, r.status) for r in rows} == {
        (r.name, r.shapes): r.status for r in back
    }
    assert all(row.status == "same" for row in diff(first, first))
