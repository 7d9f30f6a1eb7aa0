"""The report as Markdown: ``report.md``, the text tab of TensorBoard, and pull requests. Same order as on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from retainprof.analysis.answers import Answer
from retainprof.records import Finding, Result, StrategyResult
from retainprof.report import rows
from retainprof.report.rows import Column, visible
from retainprof.units import show_bytes, show_ns

__all__ = ["render"]

_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_{}[]<>#|~"})
KERNELS_SHOWN, HOLDERS_SHOWN, CALLS_SHOWN = 20, 10, 40


def text(value: str) -> str:
    """``value`` as plain text inside Markdown: control characters visible, markup escaped."""
    return visible(value).translate(_SPECIAL)


def table(columns: Sequence[Column], body: Iterable[Sequence[str]]) -> str:
    """A pipe table; numbers are set to the right."""
    head = "| " + " | ".join(text(column.head) for column in columns) + " |"
    rule = "|" + "|".join("---:" if column.number else ":---" for column in columns) + "|"
    lines = ["| " + " | ".join(text(cell) for cell in row) + " |" for row in body]
    return "\n".join([head, rule, *lines])


def render(result: Result, answers: Sequence[Answer]) -> str:
    """The whole report; ends with a newline."""
    parts = [
        f"# {text(str(result.scenario.get('name', '')))}",
        text(str(result.scenario.get("description", ""))),
        *_status(result),
        *(f"**{i}. {text(answer.question)}**\n\n{text(answer.text)}" for i, answer in enumerate(answers, 1)),
        "## Strategies",
        table(rows.STRATEGIES, rows.strategy_rows(result)),
        "## Calls",
        table(rows.CALLS, (row for s in result.strategies for row in rows.call_rows(s, result, CALLS_SHOWN))),
        f"s/c/a: gradients stolen, copied, added by AccumulateGrad. Flags: {rows.FLAGS}.",
        *_kernels(result),
        *_holders(result.strategies),
        *_findings(result.findings),
        "## How it was measured",
        _measured(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _status(result: Result) -> list[str]:
    lines = []
    if result.status == "partial":
        lines.append("> **PARTIAL**: only what is shown was measured.")
    for strategy in result.strategies:
        if strategy.error is not None:
            error = strategy.error
            where = "its forward" if error.call is None else f"call {error.call}, loss {text(error.loss)},"
            operator = f" in {text(error.operator)}" if error.operator else ""
            message = text(error.message.splitlines()[0] if error.message else "")
            lines.append(f"> **FAILED** {text(strategy.name)}: {where} raised {text(error.type)}{operator}: {message}")
    lines += [f"> {text(line)}" for line in filter(None, result.message.splitlines())]
    return ["\n>\n".join(lines)] if lines else []


def _kernels(result: Result) -> list[str]:
    parts = []
    for strategy in result.strategies:
        body = [row for found in strategy.first_vs_later for row in rows.kernel_rows(found, KERNELS_SHOWN)]
        if body:
            parts.append(f"### {text(strategy.name)}\n\n" + table(rows.KERNELS, body))
    return ["## Kernels that differ from call 0", *parts] if parts else []


def _holders(strategies: Sequence[StrategyResult]) -> list[str]:
    parts = []
    for strategy in strategies:
        held = strategy.retained
        if held.by_node:
            title = f"### {text(strategy.name)}: {show_bytes(held.after_forward_bytes)}"
            residue = (
                f"Not found in any node: {show_bytes(held.residue_bytes)}. {text(rows.resident(strategy))}".rstrip()
            )
            parts.append(
                f"{title}\n\n{table(rows.HOLDERS, rows.holder_rows(held.by_node, HOLDERS_SHOWN))}\n\n{residue}"
            )
    return ["## What the losses hold after the forward", *parts] if parts else []


def _findings(findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return []
    lines = []
    for finding in findings:
        where = finding.strategy if finding.call is None else f"{finding.strategy} call {finding.call}"
        saves = " and ".join(
            filter(
                None,
                (
                    show_bytes(finding.saves_bytes) if finding.saves_bytes else "",
                    show_ns(finding.saves_ns) if finding.saves_ns else "",
                ),
            )
        )
        tail = f" Saves {saves}." if saves else ""
        link = f" [why]({finding.url})" if finding.url.startswith("https://") else ""
        lines.append(
            f"* **{text(finding.severity)}: {text(where)}**: {text(finding.text)} {text(finding.advice)}{tail}{link}"
        )
    return ["## Findings", "\n".join(lines)]


def _measured(result: Result) -> str:
    env, timing = result.environment, result.timing
    lines = [
        f"* retainprof {text(result.retainprof)}, torch {text(env.torch)}, Python {text(env.python)}, {text(env.platform)}",
        f"* device {text(env.device)} ({text(env.device_name)}), {env.threads} threads, {text(env.cpu)}, {env.cpus} CPUs",
    ]
    if timing is not None:
        clock = "process CPU time" if timing.clock == "cpu" else "wall time"
        lines.append(
            f"* {timing.rounds} rounds after {timing.warmup_rounds} of warm-up, {timing.seconds:.1f} s, ended by: "
            f"{text(timing.stopped_by)}; verdicts rest on {clock}"
        )
    distorted = rows.distortion(result)
    return "\n".join([*lines, *([f"* {text(distorted)}"] if distorted else [])])
