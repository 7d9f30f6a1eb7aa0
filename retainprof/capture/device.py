"""Which device a scenario runs on, and how to wait for it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from retainprof.errors import DeviceError

__all__ = ["available", "resolve", "synchroniser"]


def available() -> tuple[str, ...]:
    """Devices that torch can use here: the accelerator's, one by one, and the CPU."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return ("cpu",)
    numbered = tuple(f"{accelerator.type}:{i}" for i in range(torch.accelerator.device_count()))
    return (*numbered, "cpu")


def resolve(text: str) -> torch.device:
    """The device that ``auto``, ``cpu``, ``cuda[:n]``, ``mps`` or ``xpu`` names.

    Raises:
        DeviceError: it is not there, or it is not a device's name. Nothing falls back silently.
    """
    here = available()
    if text == "auto":
        return torch.device(here[0])
    try:
        wanted = torch.device(text)
    except RuntimeError:
        raise DeviceError(f"{text!r} is no device", hint=f"available here: auto, {', '.join(here)}") from None
    numbered = wanted if wanted.type == "cpu" or wanted.index is not None else torch.device(wanted.type, 0)
    if str(numbered) not in here:
        raise DeviceError(f"device {text!r} is not available", hint=f"available here: auto, {', '.join(here)}")
    return numbered


def _nothing() -> None:
    return None


def synchroniser(device: torch.device) -> Callable[[], None]:
    """A function that waits until the device has done all it was given; does nothing on the CPU."""
    return _nothing if device.type == "cpu" else torch.accelerator.synchronize
