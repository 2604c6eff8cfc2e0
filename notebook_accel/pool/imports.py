"""Something to be done when a module is imported, and not before: nothing is imported that nobody wants."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Finder(MetaPathFinder):
    """Answers for one module."""

    def __init__(self, name: str, find: Callable[[], ModuleSpec | None]) -> None:
        self.name, self._find = name, find

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return self._find() if fullname == self.name else None


class _Filler(Loader):
    """Makes a module by filling an empty one."""

    def __init__(self, fill: Callable[[ModuleType], None]) -> None:
        self._fill = fill

    def exec_module(self, module: ModuleType) -> None:
        self._fill(module)


def replace(name: str, fill: Callable[[ModuleType], None]) -> None:
    """Have `fill` make the module `name`, in place of the installed one; refill it if it is there already."""
    if name in sys.modules:
        fill(sys.modules[name])
    elif not any(isinstance(finder, _Finder) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(name, lambda: ModuleSpec(name, _Filler(fill))))


def after(name: str, action: Callable[[], object]) -> None:
    """Call `action` once the module `name` is imported; at once if it is there already."""
    if name in sys.modules:
        action()
        return

    def find() -> ModuleSpec | None:
        sys.meta_path.remove(finder)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_act(module: ModuleType) -> None:
                load(module)
                action()

            spec.loader.exec_module = load_and_act  # type: ignore[method-assign]
        return spec

    finder = _Finder(name, find)
    sys.meta_path.insert(0, finder)
