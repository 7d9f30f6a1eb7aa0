"""Which trace files a path stands for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from retainprof.errors import TraceError

__all__ = ["trace_files"]

_ENDINGS: Final = (".json", ".json.gz")
_OURS: Final = ("result.json", "schema.json")  # files of a run folder that are no traces


def trace_files(paths: Iterable[Path]) -> tuple[tuple[Path, bool], ...]:
    """Every file, each once, with whether it was named itself; a folder stands for all ``.json`` and ``.json.gz`` in it.

    Raises TraceError for a path that is not there, or a folder without any such file.
    """
    found: dict[Path, bool] = {}
    for path in paths:
        if path.is_dir():
            inside = [file for file in sorted(path.rglob("*")) if file.is_file() and _may_be_trace(file)]
            if not inside:
                raise TraceError(f"{path}: has no .json or .json.gz file in it")
            for file in inside:
                found.setdefault(file, False)
        elif path.exists():
            found[path] = True
        else:
            raise TraceError(f"{path}: is not there")
    return tuple(found.items())


def _may_be_trace(file: Path) -> bool:
    return file.name.endswith(_ENDINGS) and file.name not in _OURS
