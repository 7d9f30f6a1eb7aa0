"""Ranks side by side on a terminal, as Markdown and as CSV. Picks and formats; computes nothing."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from retainprof.analysis.runs.ranks import BYTES, COUNTS, TIMES, RankCall, RankSpread, RankValues
from retainprof.report import markdown as marked
from retainprof.report.rows import Column, visible
from retainprof.units import MISSING, ratio, show_bytes, show_count, show_ns

__all__ = ["markdown", "rank_csv", "render"]

RANKS_SHOWN: Final = 8
EXPLAINED: Final = (
    "Times are medians over each rank's steps, counts and bytes those of its last step. Spread: highest / lowest of times, "
    "highest - lowest of the others."
)


@dataclass(frozen=True)
class _Field:
    head: str
    name: str
    kind: Literal["time", "count", "bytes"]


FIELDS: Final = (
    _Field("wall", "profiled_wall_ns", "time"),
    _Field("device busy", "device_busy_ns", "time"),
    _Field("device sum", "device_sum_ns", "time"),
    _Field("engine CPU", "engine_ns", "time"),
    _Field("nodes", "nodes", "count"),
    _Field("kernels", "kernels", "count"),
    _Field("copies", "copies_and_sets", "count"),
    _Field("net", "net_bytes", "bytes"),
    _Field("peak", "peak_bytes", "bytes"),
    _Field("retained after", "retained_bytes_after", "bytes"),
)
COLUMNS: Final = (Column("call"), Column("rank"), Column("steps"), *(Column(field.head) for field in FIELDS))


def render(calls: Sequence[RankCall], console: Console, *, full: bool = False) -> None:
    """Print the table; ``full`` shows every rank."""
    table = Table(title="Ranks side by side", title_justify="left", box=None, pad_edge=False, padding=(0, 1))
    for column in COLUMNS:
        table.add_column(column.head, justify="right", no_wrap=True)
    for row in _rows(calls, None if full else RANKS_SHOWN):
        table.add_row(*row, style="bold" if row[1] == "spread" else "")
    console.print(table)
    console.print(Text(EXPLAINED, style="dim"))


def markdown(calls: Sequence[RankCall]) -> str:
    """The table with its heading; ends with a newline."""
    return f"## Ranks side by side\n\n{marked.table(COLUMNS, _rows(calls, None))}\n\n{EXPLAINED}\n"


def _rows(calls: Sequence[RankCall], limit: int | None) -> Iterator[tuple[str, ...]]:
    """A row for each rank of each call, and its spread."""
    for call in calls:
        for values in call.ranks[:limit]:
            cells = (_shown(field, getattr(values, field.name)) for field in FIELDS)
            yield str(call.index), str(values.rank), str(values.steps), *cells
        if limit is not None and len(call.ranks) > limit:
            yield str(call.index), f"… {len(call.ranks) - limit} more", *[""] * (1 + len(FIELDS))
        spreads = {one.field: one for one in call.spreads}
        yield str(call.index), "spread", "", *(_spread(field, spreads.get(field.name)) for field in FIELDS)


def _shown(field: _Field, value: float | None) -> str:
    if value is None or field.kind == "time":
        return show_ns(value)
    return show_count(int(value)) if field.kind == "count" else show_bytes(int(value))


def _spread(field: _Field, spread: RankSpread | None) -> str:
    if spread is None:
        return MISSING
    return ratio(spread.ratio) if field.kind == "time" else _shown(field, spread.difference)


def rank_csv(calls: Sequence[RankCall]) -> str:
    """A line for each field of each call: its value in every rank, then the spread; empty where nothing was measured."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    ranks = [values.rank for values in calls[0].ranks] if calls else []
    spread = ("lowest", "lowest_rank", "highest", "highest_rank", "difference", "ratio")
    writer.writerow(["call", "label", "field", *(f"rank_{rank}" for rank in ranks), *spread])
    for call in calls:
        spreads = {one.field: one for one in call.spreads}
        for field in ("steps", *TIMES, *COUNTS, *BYTES):
            found = spreads.get(field)
            told = [None if found is None else getattr(found, name) for name in spread]
            line = [call.index, visible(call.label), field, *_of_ranks(call.ranks, field), *told]
            writer.writerow(["" if value is None else value for value in line])
    return text.getvalue()


def _of_ranks(ranks: Sequence[RankValues], field: str) -> list[float | None]:
    return [getattr(values, field) for values in ranks]
