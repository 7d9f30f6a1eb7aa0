"""Errors that retainprof raises on purpose; each class knows the exit code of the command line.

    RetainprofError            2
    ├── UsageError             2   an option or argument that does not fit
    ├── ScenarioError          2   one or more faults of a scenario file, each with its place
    ├── ImportRefused          2   a factory that ``--allow-import`` does not name
    ├── FactoryError           2   a factory that raised or returned the wrong thing
    ├── WorkloadError          2   a model that raises in its forward, a loss that is no scalar or has no gradient
    ├── DeviceError            2   a device that is not there
    ├── StoreError             2   an output folder that cannot be written, a run that cannot be read
    ├── TraceError             2   a file that is no trace, or one with nothing to say
    ├── CaptureError           3   measuring itself failed (another profiler is active, no events came back)
    └── ConditionFailed        1   ``compare --fail-on`` found its condition true

A strategy whose call raises is no exception of this tree: it is a result (``StrategyResult.error``), exit code 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

__all__ = [
    "CaptureError",
    "ConditionFailed",
    "DeviceError",
    "FactoryError",
    "Fault",
    "ImportRefused",
    "RetainprofError",
    "ScenarioError",
    "StoreError",
    "TraceError",
    "UsageError",
    "WorkloadError",
]


class RetainprofError(Exception):
    """Base class. ``hint`` is the fix, printed on a line of its own."""

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(RetainprofError):
    """An option or argument that does not fit."""


@dataclass(frozen=True)
class Fault:
    """One fault of a scenario: where, what, and the fix. ``line`` and ``column`` count from 1; 0 means unknown."""

    message: str
    line: int = 0
    column: int = 0
    key: str = ""
    hint: str = ""


class ScenarioError(RetainprofError):
    """All faults of one scenario file; ``str()`` shows each with its line and a caret."""

    def __init__(self, path: str, faults: tuple[Fault, ...], source: str = "") -> None:
        self.path, self.faults, self.source = path, faults, source
        super().__init__("\n".join(self._show(fault) for fault in faults))

    def _show(self, fault: Fault) -> str:
        place = f"{self.path}:{fault.line}:{fault.column}" if fault.line else self.path
        parts = [f"{place}: error: {fault.message}"]
        lines = self.source.splitlines()
        if 0 < fault.line <= len(lines):
            text = lines[fault.line - 1].replace("\t", " ")
            parts += [f"    {text}", "    " + " " * (fault.column - 1) + "^"]
        if fault.hint:
            parts.append(f"    {fault.hint}")
        return "\n".join(parts)


class ImportRefused(RetainprofError):
    """A factory whose package ``--allow-import`` does not name."""


class FactoryError(RetainprofError):
    """A factory that is missing, raised, or returned the wrong thing."""


class WorkloadError(RetainprofError):
    """A model that raises in its forward, or a loss that is no scalar tensor with a gradient."""


class DeviceError(RetainprofError):
    """A device that is not there."""


class StoreError(RetainprofError):
    """An output folder that cannot be written, or a run that cannot be read."""


class TraceError(RetainprofError):
    """A file that is no trace, or a trace that nothing can be read from."""


class CaptureError(RetainprofError):
    """Measuring itself failed: another profiler is active, or no events came back."""

    exit_code = 3


class ConditionFailed(RetainprofError):
    """``compare --fail-on`` found its condition true."""

    exit_code = 1
