"""The tab in a real TensorBoard: its views, runs that come and go wrong, and requests that ask for too much."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from e2e_fixtures import SCENARIOS, Measured, Tab, Watched, start_tensorboard, stop
from playwright.sync_api import FrameLocator, Page

from retainprof.analysis.answers import answers
from retainprof.units import show_ns

pytestmark = pytest.mark.browser
SHIPPED = sorted(path.stem for path in SCENARIOS.glob("*.yaml"))
MARKUP = "<img src=x onerror=alert(1)>"


def show(watched: Watched, tab: Tab, view: str, run: str = "good", **state: str) -> FrameLocator:
    """Open a view by its address, from outside, as a colleague would who was sent the link."""
    values = {"view": view, "run": run, **state}
    address = "&".join(["retainprof", *(f"p.retainprof.{key}={quote(value)}" for key, value in values.items())])
    watched.page.goto("about:blank")
    watched.page.goto(f"{tab.address}/#{address}")
    frame = watched.page.frame_locator("iframe[src*=retainprof]")
    frame.locator(f"body[data-shown$='|{view}']").wait_for(timeout=30_000)
    return frame


def alone(watched: Watched, tab: Tab, view: str, run: str = "good", **state: str) -> Page:
    """The tab's frame without TensorBoard around it, which takes seconds to start."""
    values = {"view": view, "run": run, **state}
    address = "&".join(f"{key}={quote(value)}" for key, value in values.items())
    watched.page.goto("about:blank")
    watched.page.goto(f"{tab.address}/data/plugin_entry.html?name=retainprof#{address}")
    watched.page.wait_for_selector(f"body[data-shown$='|{view}']")
    return watched.page


def get(tab: Tab, path: str, method: str = "GET") -> tuple[int, Any]:
    request = urllib.request.Request(f"{tab.address}/data/plugin/retainprof/{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()


def test_views_and_their_addresses(multitask: Measured, tab: Tab, watched: Watched) -> None:
    frame = show(watched, tab, "answers")
    for answer in answers(multitask.result):
        assert answer.text in str(frame.locator(".answers").text_content())
    frame = show(watched, tab, "calls", strategy="retain", filter="aten::add_")
    frame.locator(".kernels tbody tr").first.wait_for()
    assert set(frame.locator(".kernels tbody td:nth-child(2)").all_inner_texts()) == {"aten::add_"}
    call = multitask.result.strategies[0].calls[0]
    assert frame.locator("table").first.locator("tbody tr").first.locator("td").nth(3).inner_text() == show_ns(
        call.wall_ns.median
    )
    frame.get_by_role("tab", name="Memory").click()
    frame.locator(".icicle").wait_for()
    assert "p.retainprof.view=memory" in watched.page.url
    frame.get_by_role("tab", name="Strategies").click()
    assert frame.locator("circle.point").count() == len(multitask.result.strategies)


def test_trace_of_a_call(multitask: Measured, tab: Tab, watched: Watched) -> None:
    frame = show(watched, tab, "trace", strategy="retain", call="1")
    frame.locator("svg.trace").wait_for()
    texts = frame.locator("svg.trace title").all_text_contents()
    assert sum(text.startswith("aten::add_: ") for text in texts) == 4  # two weights and two biases of the trunk
    assert any(text.startswith("retainprof::call[1] reg: ") for text in texts)
    with watched.page.expect_download() as download:
        frame.get_by_text("Download the trace").click()
    original = multitask.folder / multitask.result.strategies[0].traces[0]
    assert Path(download.value.path()).read_bytes() == original.read_bytes()


def test_moving_in_a_trace(tab: Tab, watched: Watched) -> None:
    """The axis' first and last tick, before and after keys, a drag and the wheel."""
    page = alone(watched, tab, "trace", strategy="retain", call="0")
    page.wait_for_selector("svg.trace")
    ends = "() => { const t = [...document.querySelectorAll('svg.trace .tick')]; return [t[0].textContent, t[4].textContent]; }"
    whole = page.evaluate(ends)
    assert whole[0].startswith("-")  # a tenth of the call before its start
    assert page.get_by_text("PyTorch Profiler (0)").count() == 0
    box = page.locator(".timeline").bounding_box()
    assert box is not None
    middle, y = box["x"] + box["width"] / 2, box["y"] + 60
    page.mouse.move(middle, y)
    page.mouse.down()
    page.mouse.move(middle - 300, y, steps=3)
    page.mouse.up()
    page.wait_for_function(f"([low]) => ({ends})()[0] !== low", arg=whole)
    assert not page.evaluate(ends)[0].startswith("-")
    page.get_by_role("button", name="Whole call").press("0")
    assert page.evaluate(ends) == whole
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_function(
        f"([low, high]) => {{ const e = ({ends})(); return e[0] !== low && e[1] !== high; }}", arg=whole
    )


VIEWS = ("answers", "calls", "memory", "strategies", "trace")
READY = {"answers": ".answers", "calls": ".kernels tbody td", "memory": ".icicle", "strategies": "circle.point"}


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_no_serious_fault_of_accessibility(colours: str, tab: Tab, watched: Watched) -> None:
    for view in VIEWS:
        page = alone(watched, tab, view, theme=colours)
        page.wait_for_selector(READY.get(view, "svg.trace"))
        found = Axe().run(page).response["violations"]
        assert [(view, v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")] == []


@pytest.fixture(scope="module")
def all_runs(measure: Callable[[str], Measured], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """TensorBoard over a run of every shipped scenario."""
    logdir = tmp_path_factory.mktemp("all")
    for name in SHIPPED:
        shutil.copytree(measure(name).folder, logdir / name)
    process, address = start_tensorboard(logdir)
    yield Tab(address, logdir)
    stop(process)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_view_of_every_shipped_scenario(
    name: str, all_runs: Tab, measure: Callable[[str], Measured], watched: Watched
) -> None:
    """Each shows something of this run, without an error, and the time of its first call as the result has it."""
    result = measure(name).result
    for view in VIEWS:
        page = alone(watched, all_runs, view, run=name)
        if view == "trace":
            page.wait_for_selector("svg.trace")
        assert page.locator("#view").inner_text().strip()
        assert not page.get_by_role("alert").count(), page.get_by_role("alert").first.inner_text()
    strategy = result.strategies[0]
    page = alone(watched, all_runs, "calls", run=name, strategy=strategy.name)
    row = page.locator("table").first.locator("tbody tr").first.locator("td")
    assert row.nth(3).inner_text() == show_ns(strategy.calls[0].wall_ns.median)


def test_the_trace_is_handed_to_perfetto(multitask: Measured, tab: Tab, watched: Watched) -> None:
    """A page stands for Perfetto: it answers PING, and gets the bytes of the file and its title."""
    stand_in = """<script>
        onmessage = (event) => {
          if (event.data === "PING") event.source.postMessage("PONG", event.origin);
          else window.got = [event.data.perfetto.title, [...new Uint8Array(event.data.perfetto.buffer)]];
        };</script>"""
    watched.page.context.route(
        "https://ui.perfetto.dev/**", lambda route: route.fulfill(body=stand_in, content_type="text/html")
    )
    page = alone(watched, tab, "trace", strategy="retain", call="1")
    page.wait_for_selector("svg.trace")
    with page.expect_popup() as popup:
        page.get_by_role("button", name="Open in Perfetto").click()
    popup.value.wait_for_function("window.got !== undefined")
    page.get_by_text("Handed over to Perfetto.").wait_for()
    title, found = popup.value.evaluate("window.got")
    assert title == "good retain"
    assert bytes(found) == (multitask.folder / multitask.result.strategies[0].traces[0]).read_bytes()


def test_perfetto_does_not_answer(tab: Tab, watched: Watched) -> None:
    """After half a minute, by the page's own clock, it says so, and what to do."""
    watched.page.context.route(
        "https://ui.perfetto.dev/**", lambda route: route.fulfill(body="", content_type="text/html")
    )
    watched.page.clock.install()
    page = alone(watched, tab, "trace", strategy="retain", call="1")
    page.wait_for_selector("svg.trace")
    with page.expect_popup():
        page.get_by_role("button", name="Open in Perfetto").click()
    page.get_by_text("Waiting for Perfetto").wait_for()
    page.clock.run_for(31_000)
    page.get_by_text("Download the trace instead").wait_for()


def test_a_run_that_appears(multitask: Measured, tab: Tab, watched: Watched) -> None:
    frame = show(watched, tab, "answers")
    shutil.copytree(multitask.folder, tab.logdir / "below" / "later")
    frame.get_by_label("Run").locator("option", has_text="below/later").wait_for(state="attached", timeout=20_000)
    frame.get_by_label("Run").select_option("below/later")
    frame.locator("body[data-shown^='below/later|']").wait_for()
    frame.get_by_role("tab", name="Calls").click()
    frame.get_by_label("Also calls of run").select_option("good")
    frame.get_by_label("Call B").select_option(label="good: summed, call 0 cls+reg")
    frame.locator(".kernels tbody tr").first.wait_for()
    shutil.rmtree(tab.logdir / "below")


def test_broken_and_hostile_runs(multitask: Measured, tab: Tab, watched: Watched, tmp_path: Path) -> None:
    good = (multitask.folder / "result.json").read_text()
    bad = {
        "text": "no JSON",
        "half": good[: len(good) // 2],
        "later": json.dumps({"schema": 99}),
        "other": "[]",
        MARKUP: "{",
        "..%2f..": "{",
    }
    for name, text in bad.items():
        (tab.logdir / name).mkdir()
        (tab.logdir / name / "result.json").write_text(text)
    (tab.logdir / "folder" / "result.json").mkdir(parents=True)
    (tab.logdir / "pipe").mkdir()
    os.mkfifo(tab.logdir / "pipe" / "result.json")
    (tmp_path / "secret").mkdir()  # small: TensorBoard and torch_tb_profiler follow links and read all that is there
    (tmp_path / "secret" / "result.json").write_text(good)
    (tab.logdir / "outside").symlink_to(tmp_path)
    watched.page.wait_for_timeout(1500)
    listed = {run["id"] for run in json.loads(get(tab, "runs")[1])}
    assert listed == {"good", *bad, "folder", "pipe"}
    for name in [*bad, "folder", "pipe", "nowhere", "../good", "/etc", "outside/secret"]:
        page = alone(watched, tab, "answers", run=name)
        assert name in page.get_by_role("alert").inner_text()
        assert page.locator("img").count() == 0
    alone(watched, tab, "answers").wait_for_selector(".answers")
    watched.faults[:] = [fault for fault in watched.faults if "status of 404" not in fault]
    for name in [*bad, "folder", "pipe"]:
        shutil.rmtree(tab.logdir / name)
    (tab.logdir / "outside").unlink()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_is_written(method: str, tab: Tab) -> None:
    assert get(tab, "runs", method)[0] == 405
    assert get(tab, "trace?run=good&strategy=retain", method)[0] == 405


def test_a_result_that_names_other_files(multitask: Measured, tab: Tab) -> None:
    secret = tab.logdir.parent / "secret.json.gz"
    secret.write_bytes(gzip.compress(b'{"traceEvents": []}'))
    shutil.copytree(multitask.folder, tab.logdir / "sly")
    file = tab.logdir / "sly" / "result.json"
    for named in ("../../secret.json.gz", str(secret), "result.json/../../../secret.json.gz"):
        found = json.loads((multitask.folder / "result.json").read_text())
        found["strategies"][0]["traces"] = [named]
        file.write_text(json.dumps(found))
        urllib.request.urlopen(f"{tab.address}/data/plugin/retainprof/runs", timeout=30).close()
        for route in ("trace", "events"):
            code, body = get(tab, f"{route}?run=sly&strategy=retain&call=0")
            assert code == 404
            assert b"traceEvents" not in body
    shutil.rmtree(tab.logdir / "sly")
    for query in (
        "page?run=good/../good",
        "kernels?run=good&strategy=none",
        "events?run=good&strategy=retain&call=-1",
        "page",
    ):
        assert get(tab, query)[0] == 404
    assert get(tab, "static/../plugin.py")[0] == 404


def test_tensorboard_starts_when_the_plugin_cannot(tmp_path: Path) -> None:
    """``msgspec``, which every record needs, can't be imported there."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['msgspec'] = None\n")
    (tmp_path / "logs").mkdir()
    process, address = start_tensorboard(tmp_path / "logs", PYTHONPATH=str(tmp_path))
    try:
        with urllib.request.urlopen(f"{address}/data/plugins_listing", timeout=30) as answer:
            plugins = json.load(answer)
    finally:
        stop(process)
    assert "scalars" in plugins
    assert "retainprof" not in plugins
