"""``report.html`` from disk, in a browser without a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from e2e_fixtures import SCENARIOS, Measured, Watched
from playwright.sync_api import Page

from retainprof.analysis.answers import answers
from retainprof.records import KernelRow, Result
from retainprof.report import html
from retainprof.report.bundle import script
from retainprof.units import flops, percent, ratio, show_bytes, show_count, show_interval_ns, show_ns

pytestmark = pytest.mark.browser
VIEWS = ("answers", "calls", "memory", "strategies")
MARKUP = "</script><img src=x onerror=alert(1)><b>"


def open_view(page: Page, file: Path, view: str, **state: str) -> None:
    more = "".join(f"&{key}={value}" for key, value in state.items())
    page.goto("about:blank")
    page.goto(f"{file.as_uri()}#view={view}{more}")
    page.wait_for_selector(f"body[data-shown$='|{view}']")
    if view == "calls":
        page.wait_for_selector(".virtual")


def cells(page: Page, caption: str) -> list[list[str]]:
    body = page.locator("table", has=page.locator("caption", has_text=caption)).first.locator("tbody tr:not(.gap)")
    return [row.locator("td").all_inner_texts() for row in body.all()]


@pytest.mark.parametrize("name", sorted(path.stem for path in SCENARIOS.glob("*.yaml")))
def test_every_view_of_every_shipped_scenario(name: str, measure: Callable[[str], Measured], watched: Watched) -> None:
    file = measure(name).folder / "report.html"
    assert file.stat().st_size < 2_000_000
    for view in VIEWS:
        open_view(watched.page, file, view)
        assert watched.page.locator("#view").inner_text().strip()
        assert not watched.page.get_by_role("alert").count()
    watched.check()


def test_numbers_are_those_of_the_result(multitask: Measured, watched: Watched) -> None:
    page, file, result = watched.page, multitask.folder / "report.html", multitask.result
    open_view(page, file, "answers")
    for answer in answers(result):
        assert page.locator(".answers").get_by_text(answer.question).count() == 1
        assert answer.text in page.locator(".answers").text_content().__str__()
    open_view(page, file, "strategies")
    for row, one in zip(cells(page, "Strategies, against"), result.strategies, strict=True):
        step = one.step
        assert row[:4] == [
            one.name,
            show_ns(step.wall_ns.median),
            show_interval_ns(step.wall_ns.ci95),
            show_ns(step.cpu_ns.median),
        ]
        assert [row[6], row[8], row[9]] == [show_bytes(step.peak_bytes), flops(step.flops), show_count(step.forwards)]
    for one in result.strategies:
        open_view(page, file, "calls", strategy=one.name)
        for row, call in zip(cells(page, "Calls of"), one.calls, strict=True):
            assert [row[3], row[4]] == [show_ns(call.wall_ns.median), show_interval_ns(call.wall_ns.ci95)]
            assert [row[6], row[9], row[10]] == [
                show_ns(call.profiled_wall_ns),
                show_count(call.nodes),
                show_count(call.kernels),
            ]
            assert [row[12], row[13], row[14]] == [
                flops(call.flops),
                show_bytes(call.peak_bytes),
                show_bytes(call.retained_bytes_after),
            ]
        open_view(page, file, "memory", strategy=one.name)
        held = sorted(one.retained.by_node, key=lambda node: -node.bytes)
        assert [row[2] for row in cells(page, "Holders by node")] == [show_bytes(node.bytes) for node in held]


def test_charts_beside_the_answers(multitask: Measured, watched: Watched) -> None:
    """Call times, steps against the baseline from the cheapest on, and what is held: those of the result."""
    result, retain = multitask.result, multitask.result.strategies[0]
    assert result.timing is not None
    clock = result.timing.clock
    open_view(watched.page, multitask.folder / "report.html", "answers")
    charts = [chart.locator(".bar-row").all() for chart in watched.page.locator(".answers .glance").all()]
    shown = [[[span.inner_text() for span in row.locator("span").all()] for row in rows] for rows in charts]
    times = [call.cpu_ns if clock == "cpu" else call.wall_ns for call in retain.calls]
    assert shown[0] == [["call 0 cls", show_ns(times[0].median)], ["call 1 reg", show_ns(times[1].median)]]
    against = {c.contender: c.cpu if clock == "cpu" else c.wall for c in result.comparisons}
    assert shown[1][0] == ["summed", "1.000x"]
    assert dict(shown[1][1:]) == {name: ratio(found.median) for name, found in against.items() if found}
    medians = [found.median for name, _ in shown[1][1:] if (found := against[name])]
    assert medians == sorted(medians)
    # By hand: 128 examples x 256 floats after each of two ReLUs, log-softmax of 128 x 10, squared error's and nll's own
    assert [value for _, value in shown[2]] == ["262.0 KiB", "262.0 KiB", "133.5 KiB"]


def test_parts_of_a_step(multitask: Measured, watched: Watched) -> None:
    """FLOPs of every call as heads and trunk, which add up to it; additions of gradients as counted."""
    open_view(watched.page, multitask.folder / "report.html", "strategies")
    told = [str(one.get_attribute("aria-label")) for one in watched.page.locator(".bars svg").all()]
    retain = next(s for s in multitask.result.strategies if s.name == "retain")
    for call in retain.calls:
        assert call.flops is not None
        assert call.head_flops is not None
        assert call.accumulate is not None
        name = f"call {call.index} {call.losses[0]}"
        parts = f"{name}, heads {flops(call.head_flops)}, {name}, trunk {flops(call.flops - call.head_flops)}"
        assert any(words.startswith("retain: ") and parts in words for words in told)
        added = f"{name}, into .grad {call.accumulate.added}, {name}, where paths meet {call.fan_in_adds}"
        assert any(words.startswith("retain: ") and added in words for words in told)


def test_relations_of_gradients(multitask: Measured, watched: Watched) -> None:
    open_view(watched.page, multitask.folder / "report.html", "strategies")
    rows = {row[0]: row[1:3] for row in cells(watched.page, "Gradients, against summed")}
    assert set(rows) == {one.name for one in multitask.result.strategies}
    assert rows["summed"] == ["bitwise", "0"]
    for one in multitask.result.strategies:
        assert one.gradients is not None
        assert rows[one.name][0] == one.gradients.relation
        if one.gradients.max_rel_difference:
            assert float(rows[one.name][1]) == pytest.approx(one.gradients.max_rel_difference, rel=0.06)


def test_two_calls_kernels_are_those_of_the_result(multitask: Measured, watched: Watched) -> None:
    page = watched.page
    retain = multitask.result.strategies[0]
    open_view(page, multitask.folder / "report.html", "calls", strategy=retain.name)
    page.add_style_tag(content=".virtual { height: 9000px !important }")
    page.locator(".virtual").dispatch_event("scroll")
    page.wait_for_function(
        "n => document.querySelectorAll('.kernels tbody tr').length === n", arg=len(retain.first_vs_later[0].kernels)
    )
    words = {"only A": "only_first", "only B": "only_later"}
    shown = sorted(
        (words.get(r[0], r[0]), r[1].replace(" (around others)", ""), *r[2:]) for r in cells(page, "Kernels of call A")
    )
    expected = sorted(
        (
            k.status,
            k.name,
            k.shapes,
            show_count(k.first_count),
            show_count(k.later_count),
            show_ns(k.first_self_ns),
            show_ns(k.later_self_ns),
            show_bytes(k.first_bytes),
            show_bytes(k.later_bytes),
        )
        for k in retain.first_vs_later[0].kernels
    )
    assert shown == expected


def test_sort_filter_and_the_address(multitask: Measured, watched: Watched) -> None:
    page, file = watched.page, multitask.folder / "report.html"
    open_view(page, file, "calls", strategy="retain")
    page.get_by_label("Filter").fill("aten::add_")
    assert {row[1] for row in cells(page, "Kernels of call A")} == {"aten::add_"}
    page.get_by_role("button", name="B times").click()
    counts = [int(row[4]) for row in cells(page, "Kernels of call A")]
    assert counts == sorted(counts, reverse=True)
    assert page.locator("th[aria-sort=descending]").inner_text() == "B times"
    page.get_by_label("Status").select_option("only_later")
    assert {row[0] for row in cells(page, "Kernels of call A")} == {"only B"}
    page.get_by_label("Call B").select_option(label="summed, call 0 cls+reg")
    address, before = page.url, cells(page, "Kernels of call A")
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector(".virtual")
    assert cells(page, "Kernels of call A") == before
    assert page.get_by_label("Filter").input_value() == "aten::add_"


def test_keyboard_and_entering_a_module(multitask: Measured, watched: Watched) -> None:
    page = watched.page
    open_view(page, multitask.folder / "report.html", "answers")
    page.locator("#tab-answers").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator("[role=tab][aria-selected=true]").inner_text() == "Memory"
    page.locator(".icicle").get_by_role("button", name="trunk: ").first.press("Enter")
    assert page.locator(".icicle .cell").first.get_attribute("aria-label") == "trunk: 256.0 KiB"
    assert "node=trunk" in page.url


def test_dark_and_light(multitask: Measured, watched: Watched) -> None:
    page, ground = watched.page, "getComputedStyle(document.body).backgroundColor"
    open_view(page, multitask.folder / "report.html", "answers")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(ground) == "rgb(22, 27, 34)"
    page.get_by_role("button", name="Colours").click()
    assert page.evaluate(ground) == "rgb(255, 255, 255)"


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_no_serious_fault_of_accessibility(colours: str, multitask: Measured, watched: Watched) -> None:
    for view in VIEWS:
        open_view(watched.page, multitask.folder / "report.html", view, theme=colours)
        found = Axe().run(watched.page).response["violations"]
        assert [(view, v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")] == []


def test_prints_every_view(multitask: Measured, watched: Watched) -> None:
    open_view(watched.page, multitask.folder / "report.html", "answers")
    watched.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert watched.page.locator(".printed .view-title").all_inner_texts() == [
        "Answers",
        "Calls",
        "Memory",
        "Strategies",
    ]


def _hostile(result: Result) -> Result:
    """``result`` with markup wherever it holds text of others."""
    rows = (KernelRow(name=MARKUP, shapes=MARKUP, count=1, self_ns=5, bytes=1),)
    replace: Any = msgspec.structs.replace
    one = result.strategies[0]
    calls = tuple(replace(call, losses=(MARKUP,), kernel_rows=rows) for call in one.calls)
    node = replace(one.retained.by_node[0], node=MARKUP, module=MARKUP)
    strategy = replace(one, name=MARKUP, calls=calls, retained=replace(one.retained, by_node=(node,)))
    finding = replace(result.findings[0], text=MARKUP, advice=MARKUP, strategy=MARKUP, url="javascript:alert(1)")
    scenario = {**result.scenario, "name": MARKUP, "description": MARKUP}
    return Result(
        **{
            **{name: getattr(result, name) for name in result.__struct_fields__},
            "strategies": (strategy,),
            "comparisons": (),
            "findings": (finding,),
            "scenario": scenario,
            "message": MARKUP,
            "status": "partial",
        }
    )


def test_markup_stays_text(multitask: Measured, tmp_path: Path, watched: Watched) -> None:
    result, file, page = _hostile(multitask.result), tmp_path / "report.html", watched.page
    file.write_text(html.render(result, answers(result)))
    for view in VIEWS:
        open_view(page, file, view)
        assert page.locator("img").count() == 0
        assert page.locator("h1").inner_text() == MARKUP
        assert page.locator("a[href^=javascript]").count() == 0
    watched.check()


def test_a_hundred_thousand_kernels(multitask: Measured, tmp_path: Path, watched: Watched) -> None:
    replace: Any = msgspec.structs.replace
    rows = tuple(KernelRow(name=f"kernel_{i}", count=1, self_ns=i + 1) for i in range(100_000))
    one = multitask.result.strategies[0]
    calls = tuple(replace(call, kernel_rows=rows) for call in one.calls)
    result = replace(multitask.result, strategies=(replace(one, calls=calls, first_vs_later=()),), comparisons=())
    file = tmp_path / "report.html"
    file.write_text(html.render(result, answers(result)))
    assert file.stat().st_size < 2_000_000
    open_view(watched.page, file, "calls")
    assert watched.page.locator(".kernels tr").count() < 100
    assert (
        watched.page.get_by_text("188,000 of the shortest are not in this page").count() == 1
    )  # 2 x (100,000 - 6,000)


def test_units_are_those_of_the_reports(watched: Watched) -> None:
    values = [
        0,
        1,
        7,
        999,
        1000,
        1024,
        1049,
        1535,
        12345,
        99949,
        123456,
        999499,
        1234567,
        10**7 + 5,
        3 * 10**9,
        2**40,
        5 * 10**15,
        -131072,
        7905,
        2625,
        1125,
        1250,
        125 * 10**5,
        100500,
        101500,
    ]
    ratios = [0.5, 0.951, 0.999, 1.0, 1.004, 1.0499, 1.713, 2.1234, 12.34, 123.4]
    watched.page.goto("about:blank")
    watched.page.add_script_tag(content=script("units.js").replace("const module_0", "window.units"))
    shown = watched.page.evaluate(
        "v => v.map((x) => [units.ns(x), units.bytes(x), units.count(x), units.flops(x)])", values
    )
    assert shown == [[show_ns(v), show_bytes(v), show_count(v), flops(v)] for v in values]
    ticks = watched.page.evaluate("[1100000, 1300000, 3, 2 ** 30].map((v) => units.bytesTicks(v).map(units.bytes))")
    assert ticks == [
        ["0 B", "256.0 KiB", "512.0 KiB", "768.0 KiB", "1.0 MiB"],
        ["0 B", "256.0 KiB", "512.0 KiB", "768.0 KiB", "1.0 MiB"],
        ["0 B", "1 B", "2 B", "3 B"],
        ["0 B", "256.0 MiB", "512.0 MiB", "768.0 MiB", "1.0 GiB"],
    ]
    ticks = watched.page.evaluate("[4.1e6, 890, 1.2e9].map((v) => units.nsTicks(v).map(units.ns))")
    assert ticks == [
        ["0 ns", "1.00 ms", "2.00 ms", "3.00 ms", "4.00 ms"],
        ["0 ns", "200 ns", "400 ns", "600 ns", "800 ns"],
        ["0 ns", "500 ms", "1.00 s"],
    ]
    assert watched.page.evaluate("v => v.map(units.ratio)", ratios) == [ratio(v) for v in ratios]
    assert watched.page.evaluate("v => v.map(units.percent)", ratios) == [percent(v) for v in ratios]
    pairs = [[1.2e6, 1.3e6], [900.0, 1100.0], [5.0, 7.5]]
    assert watched.page.evaluate("v => v.map(units.intervalNs)", pairs) == [show_interval_ns((a, b)) for a, b in pairs]
