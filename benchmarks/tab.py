"""Sizes and times of the TensorBoard tab and the HTML report.

    python benchmarks/tab.py [--runs 1000] [--kernels 100000]

Promised: listing 1,000 runs takes at most 0.2 s warm; the first view of a run with 10^5 kernels is there at most 1 s after
the page was asked for; the report stays under 2 MB. Needs playwright and Debian's chromium for the times in the browser.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from retainprof.analysis.answers import answers
from retainprof.records import CallResult, Environment, KernelRow, Result, StrategyResult
from retainprof.report import html
from retainprof.store import encode
from retainprof.tb import runs as tb_runs
from retainprof.tb.runs import Runs

REPEATS = 5
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def result(kernels: int) -> Result:
    """A made-up result: one strategy, two calls with ``kernels`` different kernels each."""
    rows = tuple(KernelRow(name=f"kernel_{i}", shapes=f"{i}x{i}", count=1, self_ns=i + 1) for i in range(kernels))
    calls = tuple(
        CallResult(
            index=i,
            losses=("a",),
            kind="backward",
            retain_graph=not i,
            create_graph=False,
            label=f"retainprof::call[{i}] a",
            kernel_rows=rows,
        )
        for i in range(2)
    )
    where = Environment(
        python="3", torch="2", device="cpu", device_name="", threads=1, interop_threads=1, platform="", cpu="", cpus=1
    )
    one = StrategyResult(name="retain", kind="retain", calls=calls)
    return Result(retainprof="0", scenario={"name": "made up"}, environment=where, status="ok", strategies=(one,))


def listing(count: int, folder: Path) -> tuple[float, float]:
    """Seconds of the first look at ``count`` runs with a trace folder each, and the least of later ones."""
    data = encode(result(3))
    for i in range(count):
        (folder / f"run{i}" / "traces" / "retain").mkdir(parents=True)
        (folder / f"run{i}" / "result.json").write_bytes(data)
    found, times = Runs([folder]), []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        assert len(found.all()) == count
        times.append(time.perf_counter() - start)
        time.sleep(tb_runs.FRESH_SECONDS)
    return times[0], min(times[1:])


def first_view(file: Path, view: str, ready: str) -> float:
    """Least seconds from asking for the report in a browser until ``ready`` (a selector) is on the page."""
    times = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page()
        for _ in range(REPEATS):
            page.goto("about:blank")
            start = time.perf_counter()
            page.goto(f"{file.as_uri()}#view={view}")
            page.wait_for_selector(ready)
            times.append(time.perf_counter() - start)
        browser.close()
    return min(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--kernels", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        first, warm = listing(options.runs, Path(name))
        made = result(options.kernels)
        html.KERNEL_ROWS = 2 * options.kernels  # type: ignore[misc]  # all of them, where the report would keep fewer
        file = Path(name) / "report.html"
        file.write_text(html.render(made, answers(made)))
        print(f"listing {options.runs} runs: first {first:.3f} s, warm {warm:.3f} s (promised 0.2)")
        print(f"page with 2 x {options.kernels} kernels, {file.stat().st_size / 1e6:.1f} MB:")
        print(f"  Answers after {first_view(file, 'answers', '.answers'):.2f} s (promised 1)")
        print(f"  kernel table after {first_view(file, 'calls', '.kernels tbody td'):.2f} s")


if __name__ == "__main__":
    main()
