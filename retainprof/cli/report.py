"""``retainprof report RUN``: a finished run's report again, in another form or another place."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    p = commands.add_parser("report", help="write a finished run's report as HTML, Markdown or JSON")
    p.add_argument("run", type=Path, metavar="RUN", help="a run folder, or its result.json")
    p.add_argument(
        "-o", "--output", metavar="FILE", default="-", help="where to write it (default: -, standard output)"
    )
    p.add_argument("--format", choices=("html", "md", "json"), help="default: by the ending of FILE, else md")


def run(options: argparse.Namespace) -> int:
    """Write the report; 0."""
    from retainprof import store

    text = _render(options.run, options.format or _by_ending(options.output))
    if options.output == "-":
        sys.stdout.write(text)
    else:
        store.write_atomic(Path(options.output), text.encode())
    return 0


def _by_ending(output: str) -> str:
    return {".html": "html", ".htm": "html", ".json": "json"}.get(Path(output).suffix.lower(), "md")


def _render(folder: Path, form: str) -> str:
    from retainprof import store
    from retainprof.analysis.answers import answers

    result = store.read(folder)
    if form == "json":
        return store.encode(result).decode()
    if form == "html":
        from retainprof.report import html

        return html.render(result, answers(result))
    from retainprof.report import markdown

    return markdown.render(result, answers(result))
