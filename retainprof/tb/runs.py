"""Runs below the log directories: found again and again, cheaply, while TensorBoard runs.

A folder is listed only when its time of change differs from the last look; every other look is one ``stat``. A folder
with a ``result.json`` is a run, and nothing below it is looked at. Links to folders are not followed, so what is found
lies inside the log directory, and a request can only name what was found.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from retainprof import store
from retainprof.errors import StoreError
from retainprof.records import Result

__all__ = ["MAX_RESULT_BYTES", "Run", "Runs"]

MAX_DEPTH: Final = 8
MAX_FOLDERS: Final = 20_000
MAX_RESULT_BYTES: Final = 256 << 20
FRESH_SECONDS: Final = 1.0
SETTLED_NS: Final = 2_000_000_000  # a folder changed less than this ago may change again with the same time


@dataclass(frozen=True)
class Run:
    """A run folder. ``problem`` says in words why it cannot be shown, "" if nothing is known against it."""

    id: str
    folder: Path
    modified_ns: int
    size: int
    problem: str = ""


@dataclass
class _Folder:
    modified_ns: int = -1
    children: list[str] = field(default_factory=list)
    is_run: bool = False


class Runs:
    """Finds and reads runs. Safe to call from several threads."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)
        self._folders: dict[str, _Folder] = {}
        self._found: dict[str, Run] = {}
        self._results: dict[str, tuple[int, int, Result]] = {}
        self._looked = float("-inf")
        self._lock = threading.Lock()

    def known(self) -> int:
        """How many runs the last look found; looks at no file."""
        return len(self._found)

    def all(self) -> list[Run]:
        """Every run, the newest first; looks again if the last look is a second old."""
        with self._lock:
            if time.monotonic() - self._looked >= FRESH_SECONDS:
                self._found = self._look()
                self._looked = time.monotonic()
            return sorted(self._found.values(), key=lambda run: (-run.modified_ns, run.id))

    def find(self, run: str) -> Run:
        """The run of that id.

        Raises:
            StoreError: no such run was found below the log directory.
        """
        if run not in self._found:
            self.all()
        found = self._found.get(run)
        if found is None:
            raise StoreError(f"there is no run {run!r} below the log directory")
        return found

    def read(self, run: str) -> Result:
        """A run's result, from memory as long as its file is the same.

        Raises:
            StoreError: there is no such run, or its file is no result, not readable or larger than 256 MiB.
        """
        found = self.find(run)
        if found.problem:
            raise StoreError(found.problem)
        kept = self._results.get(run)
        if kept is not None and kept[:2] == (found.modified_ns, found.size):
            return kept[2]
        result = store.read(found.folder / "result.json")
        while len(self._results) >= 4:
            self._results.pop(next(iter(self._results)), None)
        self._results[run] = (found.modified_ns, found.size, result)
        return result

    def _look(self) -> dict[str, Run]:
        found: dict[str, Run] = {}
        seen: dict[str, _Folder] = {}
        queue = [(str(root), 0, n) for n, root in enumerate(self._roots)]
        while queue and len(seen) < MAX_FOLDERS:
            path, depth, root = queue.pop()
            folder = self._folder(path)
            if folder is None:
                continue
            seen[path] = folder
            if folder.is_run:
                run = self._run(Path(path), root)
                found[run.id] = run
            elif depth < MAX_DEPTH:
                queue += [(os.path.join(path, child), depth + 1, root) for child in folder.children]
        self._folders = seen
        return found

    def _folder(self, path: str) -> _Folder | None:
        """What is in a folder, listed again only if it has changed; None if it cannot be read."""
        try:
            modified_ns = os.stat(path).st_mtime_ns
            known = self._folders.get(path)
            if known is not None and known.modified_ns == modified_ns:
                return known
            children, is_run = _list(path)
        except OSError:
            return None
        settled = abs(time.time_ns() - modified_ns) > SETTLED_NS
        return _Folder(modified_ns if settled else -1, children, is_run)

    def _run(self, folder: Path, root: int) -> Run:
        name = folder.relative_to(self._roots[root]).as_posix()
        shown = os.fsencode(name).decode("utf-8", "backslashreplace")
        run = shown if len(self._roots) == 1 else f"{root}:{shown}"
        try:
            at = os.lstat(folder / "result.json")
        except OSError as e:
            return Run(run, folder, 0, 0, f"{run}/result.json cannot be read: {e.strerror}")
        return Run(run, folder, at.st_mtime_ns, at.st_size, _problem(at, run))


def _list(path: str) -> tuple[list[str], bool]:
    children, is_run = [], False
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name == "result.json":
                is_run = True
            elif entry.is_dir(follow_symlinks=False):
                children.append(entry.name)
    return children, is_run


def _problem(at: os.stat_result, run: str) -> str:
    if not stat.S_ISREG(at.st_mode):
        return f"{run}/result.json is no regular file"
    if at.st_size > MAX_RESULT_BYTES:
        return f"{run}/result.json has {at.st_size} bytes, more than the {MAX_RESULT_BYTES} that are read"
    return ""
