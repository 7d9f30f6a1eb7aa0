"""Two runs, or two traces, side by side: what changed, whether that is significant, and conditions on it."""

from __future__ import annotations

from retainprof.analysis.runs.compare import compare
from retainprof.analysis.runs.conditions import check, parse
from retainprof.analysis.runs.records import RunComparison
from retainprof.analysis.runs.sides import of_result, of_traces

__all__ = ["RunComparison", "check", "compare", "of_result", "of_traces", "parse"]
