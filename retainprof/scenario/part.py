"""What every part of a scenario is: a frozen model known by its kind, in a registry that refuses duplicates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["FACTORY", "FactoryPart", "Finite", "Part", "Registry", "Size", "kind_of", "names_of"]

Size = Annotated[int, Field(ge=1, le=2**31 - 1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]

FACTORY: Final = "factory"


class Part(BaseModel):
    """A section of a scenario. ``summary`` is one line for ``retainprof list``."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, defer_build=True)

    summary: ClassVar[str] = ""


class FactoryPart(Part):
    """A part that the user's own function makes; it runs only with ``--allow-import``."""

    factory: Annotated[
        str, Field(pattern=r"^[^\s:]+:[^\s:]+$", description="package.module:function, from sys.path or this folder")
    ]
    args: Annotated[dict[str, Any], Field(description="keyword arguments of the function")] = {}


T = TypeVar("T", bound=BaseModel)


def names_of(cls: type[BaseModel]) -> tuple[str, ...]:
    """The kinds that a class answers to, the proper one first."""
    names: tuple[str, ...] = get_args(cls.model_fields["kind"].annotation)
    proper = cls.model_fields["kind"].default
    return (proper, *(name for name in names if name != proper))


def kind_of(part: BaseModel) -> str:
    """The proper kind of an instance; ``factory`` for one that a factory makes."""
    return FACTORY if isinstance(part, FactoryPart) else names_of(type(part))[0]


class Registry(Mapping[str, type[T]], Generic[T]):
    """Kind to class; iterates over proper kinds, looks up other spellings too."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._classes: dict[str, type[T]] = {}

    def register(self, cls: type[T]) -> type[T]:
        """Class decorator.

        Raises:
            ValueError: one of its names is taken.
        """
        for name in names_of(cls):
            if name in self._classes:
                taken = self._classes[name].__qualname__
                raise ValueError(f"{self.what} {name!r} is registered twice: {taken} and {cls.__qualname__}")
        self._classes |= dict.fromkeys(names_of(cls), cls)
        return cls

    def __getitem__(self, kind: str) -> type[T]:
        return self._classes[kind]

    def __iter__(self) -> Iterator[str]:
        return (name for name, cls in self._classes.items() if names_of(cls)[0] == name)

    def __len__(self) -> int:
        return sum(1 for _ in self)
