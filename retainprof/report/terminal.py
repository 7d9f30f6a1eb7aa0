"""The report on a terminal: the answers first, then tables, findings, and what to type next. One screen unless ``full``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from retainprof.analysis.answers import Answer
from retainprof.records import Environment, Finding, Result, StrategyResult
from retainprof.report import rows
from retainprof.report.rows import Column, visible
from retainprof.units import MISSING, show_bytes, show_ns

__all__ = ["render"]

CALLS_SHOWN, KERNELS_SHOWN, FINDINGS_SHOWN, WORDS_WIDTH = 4, 4, 3, 24
STYLES = {
    "slower": "red",
    "faster": "green",
    "failed": "bold red",
    "different": "bold red",
    "partial": "red",
    "only later": "yellow",
    "only call 0": "yellow",
}
NARROW_DROPS = {"CPU", "95% interval", "FLOPs", "nodes", "kernels", "flags", "profiled call 0", "fwd"}
LEGEND = (
    "vs base, / call 0: medians of ratios paired in a round; peak: above the level before the forward; left: held after the "
    "last call; fwd: forwards; cold: first step of a fresh process; s/c/a: stolen/copied/added by AccumulateGrad; flags "
    + rows.FLAGS
)


def render(
    result: Result, answers: Sequence[Answer], console: Console, *, full: bool = False, folder: str | None = None
) -> None:
    """Print the report of ``result``; ``folder`` is where the run lies."""
    console.print(_head(result))
    _status(result, console)
    for number, answer in enumerate(answers, 1):
        text = Text(f"{number} ", style="bold cyan")
        text.append(visible(answer.question), style="bold")
        console.print(text)
        console.print(Padding(Text(visible(answer.text)), (0, 0, 0, 2)))
    console.print()
    _print_table(console, rows.STRATEGIES, rows.strategy_rows(result))
    _print_calls(result, console, full)
    _print_kernels(result, console, full)
    if full:
        _print_holders(result, console)
    _print_findings(result.findings, console, full)
    _foot(result, console, folder)


def _head(result: Result) -> Text:
    env, timing = result.environment, result.timing
    name = str(result.scenario.get("name", ""))
    text = Text("retainprof ", style="dim")
    text.append(visible(name), style="bold")
    rounds = "" if timing is None else f" · {timing.rounds} rounds in {timing.seconds:.0f} s"
    text.append(f" · torch {env.torch} · {_device(env)}{rounds}", style="dim")
    return text


def _device(env: Environment) -> str:
    threads = f"{env.threads} thread{'s' if env.threads != 1 else ''}"
    return f"{env.device}, {threads}" if env.device == "cpu" else f"{env.device} ({visible(env.device_name)})"


def _status(result: Result, console: Console) -> None:
    if result.status == "partial":
        console.print(Text("PARTIAL: only what is shown was measured", style="bold yellow"))
    for strategy in result.strategies:
        if strategy.error is not None:
            console.print(_failure(strategy))
    for line in filter(None, result.message.splitlines()):
        console.print(Text(f"note: {visible(line)}", style="yellow"))


def _failure(strategy: StrategyResult) -> Text:
    error = strategy.error
    assert error is not None
    where = "its forward" if error.call is None else f"call {error.call} (loss {visible(error.loss)})"
    operator = f" in {visible(error.operator)}" if error.operator else ""
    text = Text("FAILED ", style="bold red")
    text.append(f"{visible(strategy.name)}: {where} raised {visible(error.type)}{operator}: ")
    text.append(visible(error.message.splitlines()[0] if error.message else ""))
    return text


def _dropped(console: Console, columns: Sequence[Column]) -> set[int]:
    """Columns that give way: the wide ones below 150 columns, then those that other columns say more of."""
    dropped = {i for i, column in enumerate(columns) if column.wide and console.width < 150}
    if console.width < 112:
        dropped |= {i for i, column in enumerate(columns) if column.head in NARROW_DROPS}
    return dropped


def _empty(columns: Sequence[Column], body: Sequence[Sequence[str]]) -> set[int]:
    """Columns in which nothing was measured."""
    return {i for i in range(len(columns)) if body and all(row[i] in ("", MISSING) for row in body)}


def _print_table(console: Console, columns: Sequence[Column], body: Iterable[Sequence[str]]) -> None:
    body = [*body]
    dropped = _dropped(console, columns) | _empty(columns, body)
    kept = [i for i in range(len(columns)) if i not in dropped]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", collapse_padding=True)
    for i in kept:
        column = columns[i]
        needed = max([cell_len(column.head), *(cell_len(row[i]) for row in body)])
        table.add_column(
            column.head,
            justify="right" if column.number else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=needed if column.number else None,  # a number is shown whole or not at all
            max_width=None if column.number or console.width >= 150 else WORDS_WIDTH,
        )
    for row in body:
        table.add_row(*(Text(row[i], style=STYLES.get(row[i], "")) for i in kept))
    console.print(table)
    console.print()


def _print_calls(result: Result, console: Console, full: bool) -> None:
    limit = None if full else CALLS_SHOWN
    body = [row for strategy in result.strategies for row in rows.call_rows(strategy, result, limit)]
    _print_table(console, rows.CALLS, body)


def _print_kernels(result: Result, console: Console, full: bool) -> None:
    """The kernels that make the difference, of the first strategy with several calls (all, where the report is full)."""
    strategies = [s for s in result.strategies if s.first_vs_later]
    for strategy in strategies if full else strategies[:1]:
        body = [
            row for found in strategy.first_vs_later for row in rows.kernel_rows(found, None if full else KERNELS_SHOWN)
        ]
        if not body:
            console.print(Text(f"Kernels of {visible(strategy.name)}: every call runs the same", style="bold"))
            console.print()
            continue
        console.print(Text(f"Kernels of {visible(strategy.name)} that differ from call 0", style="bold"))
        _print_table(console, rows.KERNELS, body if full else body[:KERNELS_SHOWN])


def _print_holders(result: Result, console: Console) -> None:
    for strategy in result.strategies:
        held = strategy.retained
        if not held.by_node:
            continue
        residue = "" if not held.residue_bytes else f", {show_bytes(held.residue_bytes)} of them not found in any node"
        total = show_bytes(held.after_forward_bytes)
        console.print(Text(f"Held after the forward of {visible(strategy.name)}: {total}{residue}", "bold"))
        _print_table(console, rows.HOLDERS, rows.holder_rows(held.by_node))
        if found := rows.resident(strategy):
            console.print(Text(found, style="dim"))


def _print_findings(findings: Sequence[Finding], console: Console, full: bool) -> None:
    for finding in findings if full else findings[:FINDINGS_SHOWN]:
        where = f"{finding.strategy}" if finding.call is None else f"{finding.strategy} call {finding.call}"
        text = Text(
            f"{finding.severity} ", style={"error": "bold red", "warning": "yellow"}.get(finding.severity, "dim")
        )
        text.append(f"{visible(where)}: ", style="bold")
        saves = _saving(finding)
        if saves:
            text.append(f"[{saves}] ", style="green")
        text.append(visible(finding.text))
        # one line each on the one screen; the whole text is in every other output
        console.print(text, no_wrap=not full, overflow="fold" if full else "ellipsis")
        if full and finding.advice:
            console.print(Padding(Text(f"{visible(finding.advice)}\n{finding.url}", style="dim"), (0, 0, 0, 4)))
    left = len(findings) - FINDINGS_SHOWN
    if left > 0 and not full:
        console.print(
            Text(f"{left} more finding{'s' if left > 1 else ''}, and what to do about them, with --full", "dim")
        )


def _saving(finding: Finding) -> str:
    parts = [
        f"{show_bytes(finding.saves_bytes)}" if finding.saves_bytes else "",
        f"{show_ns(finding.saves_ns)}" if finding.saves_ns else "",
    ]
    found = [part for part in parts if part]
    return f"saves {' and '.join(found)}" if found else ""


def _foot(result: Result, console: Console, folder: str | None) -> None:
    distorted = rows.distortion(result)
    if distorted:
        console.print(Text(distorted, style="dim"))
    console.print(Text(LEGEND, style="dim"))
    if folder is not None:
        parent = folder.rpartition("/")[0] or "."
        text = Text("next: ", style="dim")
        text.append(f"tensorboard --logdir {visible(parent)}", style="bold")
        text.append(f"   the whole report: {visible(folder)}/report.md", "dim")
        console.print(text)
