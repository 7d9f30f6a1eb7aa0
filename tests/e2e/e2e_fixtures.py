"""A headless browser that reaches nothing but this machine, runs to look at, and a TensorBoard that shows them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Dialog, Page, Route, sync_playwright

from retainprof import store
from retainprof.cli import main
from retainprof.records import Result

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
QUICK = [
    "--rounds",
    "2",
    "--threads",
    "1",
    "--quiet",
    "--set",
    "measure.cold=0",
    "--set",
    "measure.warmup=0",
    "--set",
    "profile.steps=1",
]


@dataclass
class Watched:
    """A page, and everything that must not have happened on it."""

    page: Page
    faults: list[str] = field(default_factory=list)

    def check(self) -> None:
        """No console error, no exception, no dialog, no request that leaves."""
        assert self.faults == []


@dataclass(frozen=True)
class Measured:
    """A run folder and its result."""

    folder: Path
    result: Result


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    """A fresh page; what it did wrong is asserted at the end of the test as well."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    found = Watched(context.new_page())
    page = found.page

    def guard(route: Route) -> None:
        parts = urlsplit(route.request.url)
        if parts.scheme in ("file", "data", "blob") or parts.hostname in ("127.0.0.1", "localhost"):
            route.continue_()
        else:
            found.faults.append(f"request to {route.request.url}")
            route.abort()

    def refuse(dialog: Dialog) -> None:
        found.faults.append(f"dialog {dialog.message}")
        dialog.dismiss()

    page.route("**/*", guard)
    page.on("console", lambda m: found.faults.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: found.faults.append(str(e)))
    page.on("dialog", refuse)
    yield found
    context.close()
    found.check()


@pytest.fixture(scope="session")
def measure(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Measured]:
    """Run a shipped scenario in a few rounds; the same run each time it is asked for."""
    made: dict[str, Measured] = {}

    def run(name: str) -> Measured:
        if name not in made:
            out = tmp_path_factory.mktemp(name)
            assert main(["run", str(SCENARIOS / f"{name}.yaml"), "--out", str(out), *QUICK]) in (0, 3)
            folder = next(out.glob("*/result.json")).parent
            made[name] = Measured(folder, store.read(folder))
        return made[name]

    return run


@pytest.fixture(scope="session")
def multitask(measure: Callable[[str], Measured]) -> Measured:
    """The run that most tests look at."""
    return measure("multitask")


def start_tensorboard(logdir: Path, **env: str) -> tuple[subprocess.Popen[bytes], str]:
    """A TensorBoard of its own on a free port, and its address once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.1", "--reload_interval", "1", "--load_fast", "false"],
        env={**os.environ, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=logdir,  # not the checkout: stale metadata there would hide the installed entry point
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{port}"
    for _ in range(240):
        if _answers(f"{address}/data/plugins_listing"):
            return process, address
        assert process.poll() is None, "TensorBoard ended"
        time.sleep(0.25)
    stop(process)
    raise AssertionError("TensorBoard did not answer")


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=30).close()
    except (urllib.error.URLError, OSError):
        return False
    return True


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a TensorBoard and what it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@dataclass(frozen=True)
class Tab:
    """A running TensorBoard and its log directory."""

    address: str
    logdir: Path


@pytest.fixture(scope="session")
def tab(tmp_path_factory: pytest.TempPathFactory, multitask: Measured) -> Iterator[Tab]:
    """TensorBoard over a log directory with one good run."""
    logdir = tmp_path_factory.mktemp("logdir")
    shutil.copytree(multitask.folder, logdir / "good")
    process, address = start_tensorboard(logdir)
    yield Tab(address, logdir)
    stop(process)
