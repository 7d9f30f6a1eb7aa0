"""Texts as numbers: every different one is kept once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Ident", "Interned", "Threads"]

T = TypeVar("T", bound=Hashable)
Ident = int | str


class Interned(dict[T, int], Generic[T]):
    """Numbers by value, given in order of first sight: ``interned[value]``."""

    def __missing__(self, value: T) -> int:
        number = self[value] = len(self)
        return number


class Threads(dict[tuple[Ident, Ident], int]):
    """Numbers of threads by (pid, tid); ``"25738"`` and ``25738`` are the same thread."""

    def __init__(self) -> None:
        super().__init__()
        self.idents: list[tuple[Ident, Ident]] = []

    def __missing__(self, key: tuple[Ident, Ident]) -> int:
        plain = (_plain(key[0]), _plain(key[1]))
        if plain != key or type(plain[0]) is not type(key[0]) or type(plain[1]) is not type(key[1]):
            number = self[key] = self[plain]
            return number
        number = self[key] = len(self.idents)
        self.idents.append(key)
        return number


def _plain(ident: Ident) -> Ident:
    return int(ident) if isinstance(ident, str) and ident.isascii() and ident.isdigit() and len(ident) < 20 else ident
