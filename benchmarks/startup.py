"""What starting costs: ``retainprof --help`` and ``validate`` against ``import torch``, each a fresh process.

python benchmarks/startup.py [--rounds 15]
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

SCENARIO = Path(__file__).resolve().parents[1] / "scenarios" / "multitask.yaml"
COMMANDS = {
    "python -c 'import torch'": ["-c", "import torch"],
    "python -c pass": ["-c", "pass"],
    "retainprof --help": ["-m", "retainprof", "--help"],
    "retainprof validate": ["-m", "retainprof", "validate", str(SCENARIO)],
}


def main() -> None:
    """Print medians and their ratio to importing torch; ``--help`` is promised to take at most a tenth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for n in range(rounds + 1):
        for name in random.sample(list(COMMANDS), len(COMMANDS)):
            start = time.perf_counter()
            subprocess.run([sys.executable, *COMMANDS[name]], check=True, stdout=subprocess.DEVNULL)
            if n:  # the first round fills the disk cache
                seconds[name].append(time.perf_counter() - start)
    torch = statistics.median(seconds["python -c 'import torch'"])
    print(f"{'command':26s} {'median s':>9s} {'of importing torch':>19s}")
    for name, samples in seconds.items():
        middle = statistics.median(samples)
        print(f"{name:26s} {middle:9.3f} {middle / torch:19.3f}")


if __name__ == "__main__":
    main()
