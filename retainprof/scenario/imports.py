"""The user's own functions: found, allowed, called, and their failures told with their own traceback."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from retainprof.errors import FactoryError, ImportRefused

if TYPE_CHECKING:
    from retainprof.scenario.model import Scenario
    from retainprof.scenario.part import FactoryPart

__all__ = ["Imports"]

OURS: Final = str(Path(__file__).resolve().parents[1])


@dataclass(frozen=True)
class Imports:
    """The packages that factories may be imported from, and the scenario's folder, which is searched after sys.path."""

    allowed: tuple[str, ...] = ()
    folder: Path | None = None

    @classmethod
    def allowing(cls, scenario: Scenario, packages: Sequence[str]) -> Imports:
        """What ``--allow-import`` names, for the folder of a scenario.

        Raises:
            ImportRefused: a factory of the scenario is in none of the packages.
        """
        imports = cls(tuple(packages), scenario.folder)
        for part in scenario.factories:
            imports.check(part.factory)
        return imports

    def check(self, factory: str) -> None:
        """Raise ImportRefused, with the option that is missing, unless the factory's package is allowed."""
        module = factory.partition(":")[0]
        if not any(module == package or module.startswith(package + ".") for package in self.allowed):
            top = module.partition(".")[0]
            raise ImportRefused(
                f"{factory} would be imported and run, which nothing allows",
                hint=f"if you trust that code, add: --allow-import {top}",
            )

    def find(self, part: FactoryPart) -> Callable[..., Any]:
        """The function that a factory names.

        Raises:
            ImportRefused: it is not allowed.
            FactoryError: no such module or name, an import that raises, or no function.
        """
        self.check(part.factory)
        module_name, _, name = part.factory.partition(":")
        found: Any = self._module(module_name)
        for attribute in name.split("."):
            if not hasattr(found, attribute):
                raise FactoryError(f"{part.factory}: {module_name} has no {name!r}", hint=_like(name, found))
            found = getattr(found, attribute)
        if not callable(found):
            raise FactoryError(
                f"{part.factory} is {type(found).__name__}, expected a function", hint="name what makes it"
            )
        function: Callable[..., Any] = found
        return function

    def make(self, part: FactoryPart, what: str, expected: type | tuple[type, ...]) -> Any:
        """Call a factory with its arguments; ``what`` names what it makes in errors.

        Raises:
            ImportRefused: it is not allowed.
            FactoryError: see :meth:`find`; it raised (its own frames are in the hint), or returned another type.
        """
        function = self.find(part)
        try:
            made = function(**arguments(part))
        except (Exception, SystemExit) as e:
            raise FactoryError(
                f"the {what}'s factory {part.factory} raised {type(e).__name__}: {e}", hint=_their_frames(e)
            ) from e
        if not isinstance(made, expected):
            kinds = expected if isinstance(expected, tuple) else (expected,)
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise FactoryError(f"the {what}'s factory {part.factory} returned {_type(made)}, expected {wanted}")
        return made

    def _module(self, name: str) -> ModuleType:
        self._search_folder()
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as e:
            if e.name is None or not (name == e.name or name.startswith(e.name + ".")):
                raise FactoryError(f"importing {name} raised {type(e).__name__}: {e}", hint=_their_frames(e)) from e
            where = f"sys.path and {self.folder}" if self.folder else "sys.path"
            raise FactoryError(
                f"no module {e.name!r} on {where}", hint="a factory is package.module:function"
            ) from None
        except (Exception, SystemExit) as e:  # a script that parses its arguments when imported exits
            raise FactoryError(f"importing {name} raised {type(e).__name__}: {e}", hint=_their_frames(e)) from e

    def _search_folder(self) -> None:
        """Let the scenario's folder be searched last, and forget modules of another scenario's folder."""
        folder = str(self.folder) if self.folder else None
        for other in [added for added in _searched if added != folder]:
            _searched.remove(other)
            if other in sys.path:
                sys.path.remove(other)
            for name, module in list(sys.modules.items()):
                file = getattr(module, "__file__", None)
                if file and Path(file).is_relative_to(other) and name.partition(".")[0] in self.allowed:
                    del sys.modules[name]
        if folder and folder not in sys.path:
            sys.path.append(folder)
            _searched.append(folder)
        importlib.invalidate_caches()


_searched: list[str] = []


def arguments(part: FactoryPart) -> dict[str, Any]:
    """The arguments as YAML has them, with lists again."""
    return {name: _thawed(value) for name, value in part.args.items()}


def _thawed(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_thawed(item) for item in value]
    if isinstance(value, dict):
        return {key: _thawed(item) for key, item in value.items()}
    return value


def _like(name: str, module: object) -> str:
    from retainprof.scenario.names import hint

    return hint(name, [known for known in vars(module) if not known.startswith("_")], "it has")


def _type(value: object) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} ({', '.join(type(item).__name__ for item in value)})"
    return type(value).__name__


def _their_frames(e: BaseException) -> str:
    """The traceback from the first frame on that is neither retainprof's nor the import machinery's."""
    frames = traceback.extract_tb(e.__traceback__)
    skip = (OURS, "<frozen importlib", str(Path(importlib.__file__).parent))
    start = next((i for i, frame in enumerate(frames) if not frame.filename.startswith(skip)), len(frames))
    return "".join([*traceback.format_list(frames[start:]), *traceback.format_exception_only(e)]).rstrip()
