"""Progress on a terminal while a scenario runs; silent where standard error is none, so that logs stay readable.

It is drawn between steps, by the thread that measures: a thread of its own would take turns with the calls being timed.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

__all__ = ["Progress"]


REFRESH_SECONDS: Final = 0.25


class Progress:
    """A bar a phase, with what is being measured and the time left, on standard error."""

    def __init__(self, title: str, *, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._title = title
        self._bar = Bar(
            TextColumn("{task.description:10s}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[what]}"),
            console=console,
            transient=True,
            auto_refresh=False,
            disable=quiet or not console.is_terminal,
        )
        self._drawn = 0.0
        self._task = self._bar.add_task("", total=1.0, what="starting")

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def phase(self, name: str, what: str) -> None:
        """A pass begins."""
        if not self._bar.disable:
            self._bar.reset(self._task, description=escape(name), what=escape(f"{self._title}: {what}"), total=1.0)
            self._bar.refresh()

    def tick(self, share: float, what: str) -> None:
        """``share`` of the pass is done; ``what`` it is at."""
        now = time.monotonic()
        if self._bar.disable or now - self._drawn < REFRESH_SECONDS:
            return
        self._drawn = now
        self._bar.update(self._task, completed=share, what=escape(f"{self._title}: {what}"), refresh=True)
