"""``report.html``: the views of the TensorBoard tab, without the trace, in one file that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import jinja2

from retainprof.analysis.answers import Answer
from retainprof.records import Result
from retainprof.report import page_data
from retainprof.report.bundle import STATIC, embed, script

__all__ = ["KERNEL_ROWS", "render"]

KERNEL_ROWS: Final = 12_000  # of all calls together; 12,000 rows are about half a megabyte
_TEMPLATE: Final = Path(__file__).resolve().parent / "templates" / "report.html"


def render(result: Result, answers: Sequence[Answer]) -> str:
    """The whole page. Of more than ``KERNEL_ROWS`` kernel rows each call keeps its longest; the page says how many not."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    calls = sum(len(strategy.calls) for strategy in result.strategies)
    limit = max(1, KERNEL_ROWS // max(1, calls))
    tables = {s.name: page_data.kernels([call.kernel_rows for call in s.calls], limit) for s in result.strategies}
    return template.render(
        title=str(result.scenario.get("name", "")),
        answers=answers,
        style=(STATIC / "style.css").read_text(encoding="utf-8"),
        page=embed(page_data.page(result, answers)),
        kernels=embed(tables),
        script=script("report.js"),
    )
