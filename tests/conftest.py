"""Shared fixtures: one thread, quiet Kineto, the folder of reference cases where it is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

pytest_plugins = ["capture_fixtures", "cli_fixtures", "e2e_fixtures"]  # see pythonpath in setup.cfg
SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Counts and bytes are promised for one thread."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)


@pytest.fixture
def shared() -> Path:
    """The folder of reference cases and traces beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is not there: reference cases and traces are kept beside the checkout")
    return SHARED
