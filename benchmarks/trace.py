"""Reading and analysing traces: CPU seconds and peak memory against other readers, and growth with the number of events.

    python benchmarks/trace.py TRACE... [--repeat 3]
    python benchmarks/trace.py --growth 1e4.json.gz 1e5.json.gz 1e6.json.gz

Every figure is from a fresh process: CPU seconds of the work alone, the peak of resident memory above what the interpreter
and the reader's imports hold. Of several runs the fastest counts. ``analyze`` is everything from the compressed file to the
report; orjson and json get the decompressed text and only decode it; HTA and torch_tb_profiler load the file as they do
for their own analyses. Readers that are not installed are left out (``pip install retainprof[benchmark]``).
"""

from __future__ import annotations

import argparse
import gc
import gzip
import importlib
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

OURS, AGAINST = "analyze", "orjson.loads"
PROMISED = {"orjson.loads": 0.5, "HTA": 0.1, "torch_tb_profiler": 0.1}  # analyze / the other, CPU seconds
PROMISED_EXPONENT = 1.05
Work = Callable[[Path], object]


def _analyze() -> Work:
    trace = importlib.import_module("retainprof.trace")
    return lambda path: trace.analyze(trace.read(path))


def _orjson() -> Work:
    return _decoder(importlib.import_module("orjson").loads)


def _orjson_without_gc() -> Work:
    decode = _orjson()
    gc.disable()
    return decode


def _json() -> Work:
    return _decoder(json.loads)


def _hta() -> Work:
    trace = importlib.import_module("hta.common.trace").Trace
    return lambda path: trace(trace_files={0: str(path)}, trace_dir="").load_traces(use_multiprocessing=False)


def _torch_tb_profiler() -> Work:
    data = importlib.import_module("torch_tb_profiler.profiler.data").RunProfileData
    return lambda path: data.parse("worker0", 0, str(path), "")


def _decoder(loads: Callable[[bytes], Any]) -> Work:
    """Decodes what :func:`_prepared` has decompressed."""
    return lambda path: loads(_TEXTS[path])


READERS: dict[str, Callable[[], Work]] = {
    OURS: _analyze,
    AGAINST: _orjson,
    "orjson.loads, gc off": _orjson_without_gc,
    "json.loads": _json,
    "HTA": _hta,
    "torch_tb_profiler": _torch_tb_profiler,
}
_TEXTS: dict[Path, bytes] = {}


def once(reader: str, path: Path) -> None:
    """In a process of its own: do the work and print seconds and bytes."""
    work = READERS[reader]()
    if "json" in reader:
        _TEXTS[path] = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    kept = work(path)
    seconds = time.process_time() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert kept is not work
    print(json.dumps({"seconds": seconds, "bytes": (after - before) * 1024}))


def measured(reader: str, path: Path, repeat: int) -> tuple[float, int] | None:
    """Seconds and bytes of the fastest run; None where the reader fails or is missing."""
    found = []
    for _ in range(repeat):
        words = [sys.executable, __file__, str(path), "--reader", reader]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"    {reader}: {(done.stderr.splitlines() or ['failed'])[-1]}")
            return None
        one = json.loads(done.stdout.splitlines()[-1])
        found.append((float(one["seconds"]), int(one["bytes"])))
    return min(found)


def compare(path: Path, repeat: int) -> None:
    """All readers on one trace."""
    size = sum(len(block) for block in iter(_blocks(path).__next__, b""))
    print(f"{path.name}: {size / 1e6:.1f} MB of JSON")
    ours = measured(OURS, path, repeat)
    assert ours is not None
    for reader in READERS:
        found = ours if reader == OURS else measured(reader, path, repeat)
        if found is None:
            continue
        ratio = ours[0] / found[0]
        promised = PROMISED.get(reader)
        said = "" if promised is None else f", promised {promised}: {'yes' if ratio <= promised else 'NO'}"
        print(f"    {reader:22s} {found[0]:8.3f} s {found[1] / 1e6:8.0f} MB   analyze / this {ratio:6.3f}{said}")


def _blocks(path: Path) -> Any:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        while block := file.read(1 << 22):
            yield block
    yield b""


def growth(paths: Sequence[Path], repeat: int) -> None:
    """How time and memory grow with the events: the exponent between the two largest traces and over all."""
    points = []
    for path in paths:
        events, found = _events(path), measured(OURS, path, repeat)
        assert found is not None
        points.append((events, *found))
        print(
            f"    {events:12,d} events {found[0]:8.3f} s {found[1] / 1e6:8.0f} MB {found[0] / events * 1e6:6.2f} µs an event"
        )
    for one, other in pairwise(points):
        exponent = math.log(other[1] / one[1]) / math.log(other[0] / one[0])
        verdict = "yes" if exponent <= PROMISED_EXPONENT else "NO"
        print(f"    {one[0]:,d} to {other[0]:,d}: exponent {exponent:.3f}, promised {PROMISED_EXPONENT}: {verdict}")


def _events(path: Path) -> int:
    trace = importlib.import_module("retainprof.trace")
    return int(trace.read(path).events)


def main() -> None:
    """Print the table, or the growth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--growth", action="store_true", help="the traces are of growing size")
    parser.add_argument("--reader", choices=READERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reader:
        once(options.reader, options.traces[0])
    elif options.growth:
        growth(options.traces, options.repeat)
    else:
        for path in options.traces:
            compare(path, options.repeat)


if __name__ == "__main__":
    main()
