"""Reports of a result: terminal, Markdown, JSON, HTML, TensorBoard. They pick and format; they compute nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retainprof.records import Result
    from retainprof.store import RunFolder

__all__ = ["write_reports"]


def write_reports(result: Result, folder: RunFolder) -> None:
    """Write every report that belongs into the run folder.

    Raises:
        StoreError: the folder can no longer be written.
    """
    from retainprof.analysis.answers import answers
    from retainprof.report import html, markdown, tensorboard
    from retainprof.store import write_atomic

    answered = answers(result)
    text = markdown.render(result, answered)
    write_atomic(folder.root / "report.md", text.encode())
    write_atomic(folder.root / "report.html", html.render(result, answered).encode())
    tensorboard.write(result, folder, text)
