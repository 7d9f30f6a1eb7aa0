"""What the numbers depend on: versions, device, threads, and the settings that change them."""

from __future__ import annotations

import os
import platform
import sys
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

import torch

from retainprof.records import Environment

__all__ = ["environment"]

RELEVANT = (
    "OMP_",
    "MKL_",
    "KMP_",
    "GOMP_",
    "CUDA_",
    "PYTORCH_",
    "TORCH",
    "NVIDIA_TF32_OVERRIDE",
    "ATEN_CPU_CAPABILITY",
)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def environment(device: torch.device, dtype: torch.dtype) -> Environment:
    """The environment of a run on ``device`` whose parameters are of ``dtype``."""
    name = platform.machine() if device.type == "cpu" else torch.get_device_module(device).get_device_name(device)
    return Environment(
        python=platform.python_version(),
        torch=str(torch.__version__),
        device=str(device),
        device_name=name,
        threads=torch.get_num_threads(),
        interop_threads=torch.get_num_interop_threads(),
        platform=f"{sys.platform} {platform.release()} {platform.machine()}",
        cpu=_cpu_name(),
        cpus=_cpus(),
        tensorboard=_version("tensorboard"),
        torch_tb_profiler=_version("torch-tb-profiler"),
        cuda=torch.version.cuda,
        dtype=str(dtype).removeprefix("torch."),
        rank=int(os.environ.get("RANK", "0")),
        world_size=int(os.environ.get("WORLD_SIZE", "1")),
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        env={k: v for k, v in sorted(os.environ.items()) if k.startswith(RELEVANT)},
    )
