"""Sizes and times of the TensorBoard tab and the HTML report.

    python benchmarks/tab.py [--runs 1000] [--kernels 100000] [--files 20000] [--bytes 1000000000]

Promised: listing 1,000 runs takes at most 0.2 s warm; the first view of a run with 10^5 kernels is there at most 1 s after
the page was asked for, in the tab as in the report. The runs have traces of a gigabyte in all and lie beside a folder of
other files, as in a log directory that has been used for long. Needs playwright and Debian's chromium for the times in the
browser.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright
from tensorboard import program

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


def listing(count: int, files: int, size: int, folder: Path) -> tuple[float, float]:
    """Seconds of the first look at ``count`` runs with traces of ``size`` bytes in all beside ``files`` others; the least of
    later ones."""
    data = encode(result(3))
    (folder / "others").mkdir()
    for i in range(files):
        (folder / "others" / f"events.out.tfevents.{i}").touch()
    for i in range(count):
        (folder / f"run{i}" / "traces" / "retain").mkdir(parents=True)
        with (folder / f"run{i}" / "traces" / "retain" / "host_1.1.pt.trace.json.gz").open("wb") as trace:
            trace.truncate(size // count)
        (folder / f"run{i}" / "result.json").write_bytes(data)
    found, times = Runs([folder]), []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        assert len(found.all()) == count
        times.append(time.perf_counter() - start)
        time.sleep(tb_runs.FRESH_SECONDS)
    return times[0], min(times[1:])


def first_views(address: str, ready: dict[str, str]) -> dict[str, list[float]]:
    """Seconds from asking for a page in a browser until a view's selector is there, by view, in order of measuring."""
    times: dict[str, list[float]] = {view: [] for view in ready}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for view, selector in ready.items():
            for _ in range(REPEATS):
                page = browser.new_page()  # nothing cached
                start = time.perf_counter()
                page.goto(f"{address}#view={view}")
                page.wait_for_selector(selector)
                times[view].append(time.perf_counter() - start)
                page.close()
        browser.close()
    return times


def serve(logdir: Path) -> str:
    """The address of the tab's frame in a TensorBoard on ``logdir``."""
    server = program.TensorBoard()
    server.configure(argv=["tensorboard", "--logdir", str(logdir), "--port", "0", "--host", "127.0.0.1"])
    return f"{server.launch()}data/plugin_entry.html?name=retainprof"


def show(what: str, times: dict[str, list[float]]) -> None:
    """Two lines: the first view, and the kernel table."""
    print(what)
    for view, name in (("answers", "Answers"), ("calls", "kernel table")):
        promised = " (promised 1)" if view == "answers" else ""
        print(f"  {name}: first {times[view][0]:.2f} s, then {min(times[view]):.2f} s{promised}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--kernels", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--bytes", type=int, default=1_000_000_000, help="of all traces together")
    options = parser.parse_args()
    ready = {"answers": ".answers", "calls": ".kernels tbody td"}
    made = result(options.kernels)
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as logdir:
        first, warm = listing(options.runs, options.files, options.bytes, Path(name))
        print(
            f"listing {options.runs} runs beside {options.files} files: first {first:.3f} s, warm {warm:.3f} s (promised 0.2)"
        )
        (Path(logdir) / "run").mkdir()
        (Path(logdir) / "run" / "result.json").write_bytes(encode(made))
        show(f"tab, 2 x {options.kernels} kernels:", first_views(serve(Path(logdir)), ready))
        html.KERNEL_ROWS = 2 * options.kernels  # type: ignore[misc]  # all of them, where the report would keep fewer
        file = Path(name) / "report.html"
        file.write_text(html.render(made, answers(made)))
        size = file.stat().st_size / 1e6
        show(f"report with all 2 x {options.kernels} kernels, {size:.1f} MB:", first_views(file.as_uri(), ready))


if __name__ == "__main__":
    main()
