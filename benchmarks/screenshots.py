"""The README's pictures: the tab's views of one run, from a TensorBoard of its own.

    python benchmarks/screenshots.py RUN [--out docs]

Needs playwright, Pillow (the extra ``images`` brings it) and Debian's chromium. Writes answers.png, calls.png, memory.png,
strategies.png and trace.png.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
from pathlib import Path

import tensorboard.program as program
from PIL import Image
from playwright.sync_api import sync_playwright

VIEWS = {
    "answers": ".answers",
    "calls": ".kernels tbody td",
    "memory": ".icicle",
    "strategies": "circle.point",
    "trace": "svg.trace",
}
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as logdir:
        shutil.copytree(options.run, Path(logdir) / "run")
        take(logdir, options.out)


def take(logdir: str, out: Path) -> None:
    """One picture a view of the only run below ``logdir``."""
    server = program.TensorBoard()
    server.configure(argv=["tensorboard", "--logdir", logdir, "--port", "0", "--host", "127.0.0.1"])
    address = server.launch()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1100, "height": 760})
        for view, ready in VIEWS.items():
            page.goto("about:blank")
            page.goto(f"{address}data/plugin_entry.html?name=retainprof#view={view}&theme=light")
            page.wait_for_selector(ready)
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            picture.quantize(64).save(out / f"{view}.png", optimize=True)  # a third of the size, and looks the same
        browser.close()


if __name__ == "__main__":
    main()
