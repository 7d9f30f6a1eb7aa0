"""Python's garbage collector, kept away from what is measured. Nothing here imports torch."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

__all__ = ["collected", "run_and_exit"]

_inside = False


@contextmanager
def collected() -> Iterator[None]:
    """The garbage collector off, and what exists now out of its sight; both as before afterwards. May be nested."""
    global _inside
    if _inside:
        yield
        return
    was_on = gc.isenabled()
    gc.freeze()
    gc.disable()
    _inside = True
    try:
        yield
    finally:
        _inside = False
        gc.unfreeze()
        if was_on:
            gc.enable()


def run_and_exit(run: Callable[[], int]) -> NoReturn:
    """End the process with the status that ``run()`` returns, without the collector from beginning to end.

    Imports are quicker without it. Nor are torch's modules taken apart at the end, which takes up to a second: exit handlers
    run, what is buffered is written, and the operating system does the rest.
    """
    global _inside
    gc.disable()
    gc.freeze()
    _inside = True
    code = run()
    atexit._run_exitfuncs()
    os._exit(code or _flushed())


def _flushed() -> int:
    """Write what is buffered: 0, or 2 where that fails for another reason than that the reader has gone."""
    try:
        if sys.stdout is not None:  # it is where the program was started with it closed
            sys.stdout.flush()
    except BrokenPipeError:
        return 0
    except OSError as e:
        with contextlib.suppress(OSError):
            print(f"retainprof: error: the output cannot be written: {e.strerror or e}", file=sys.stderr)
        return 2
    finally:
        with contextlib.suppress(OSError):
            if sys.stderr is not None:
                sys.stderr.flush()
    return 0
