"""Any Kineto trace, from a file to one pass for each backward call. Nothing here imports torch."""

from __future__ import annotations

from retainprof.trace.own import passes
from retainprof.trace.report import TraceReport, analyze
from retainprof.trace.trace import Trace, read

__all__ = ["Trace", "TraceReport", "analyze", "passes", "read"]
