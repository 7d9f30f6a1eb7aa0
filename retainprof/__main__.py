"""``python -m retainprof``."""

from retainprof.cli import entry

if __name__ == "__main__":
    entry()
