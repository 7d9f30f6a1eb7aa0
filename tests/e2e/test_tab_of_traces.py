"""What ``analyze --out`` wrote, in a real TensorBoard: all views of our tab, without a fault, and the trace's calls drawn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e_fixtures import Watched, start_tensorboard, stop
from trace_builders import run, trace

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A TensorBoard on two ranks whose calls only the engine's events tell."""
    folder = tmp_path_factory.mktemp("analyzed")
    for rank in (0, 1):
        trace(folder / "job", f"host_{rank}.json", rank=rank, labelled=False)
    assert run(folder / "job", "--out", folder / "made", "--quiet") == 0
    next((folder / "made").iterdir()).rename(folder / "made" / "job")
    process, found = start_tensorboard(folder / "made")
    yield found
    stop(process)


@pytest.mark.parametrize("view", ["answers", "calls", "memory", "strategies", "trace"])
def test_view(view: str, address: str, watched: Watched) -> None:
    words = "&strategy=rank%201&call=1" if view == "trace" else ""
    page = watched.page
    page.goto(f"{address}/data/plugin_entry.html?name=retainprof#view={view}&run=job{words}")
    page.wait_for_selector(f"body[data-shown$='|{view}']")
    if view == "calls":
        assert "rank 1" in page.inner_text("body")
    if view == "trace":
        page.wait_for_selector("svg.trace")
        titles = page.locator("svg.trace title").all_text_contents()
        assert sum(title.startswith("aten::add_: ") for title in titles) == 1
        assert not any(title.startswith("aten::detach: ") for title in titles)
