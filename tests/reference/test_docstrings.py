"""Docstrings of public names describe their parameters."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

import pytest

from library_symbols import VIEWS


def _describes(thing: object) -> bool:
    return any(f"{head}\n" in (thing.__doc__ or "") for head in ("Parameters", "Attributes"))


def _parameters(function) -> int:
    """Without `self` or `cls`."""
    names = [p for p in inspect.signature(function).parameters if p not in ("self", "cls")]
    return len(names)


def _own_bases(cls: type) -> list[type]:
    return [
        base
        for base in cls.__mro__
        if base.__module__.partition(".")[0] == cls.__module__.partition(".")[0]
    ]


def undescribed(module) -> Iterator[str]:
    """Public functions and methods with two parameters or more, of which nothing is said.

    A method that overrides another of the library has its description there.
    """
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isfunction(thing) and _parameters(thing) >= 2 and not _describes(thing):
            yield name
        if not inspect.isclass(thing):
            continue
        bases = _own_bases(thing)
        if "__init__" in vars(thing) and _parameters(thing.__init__) >= 2:
            if not any(_describes(base) for base in bases):
                yield name
        for key, value in vars(thing).items():
            method = getattr(value, "__func__", value)
            if key.startswith("_") or not inspect.isfunction(method) or _parameters(method) < 2:
                continue
            if not any(_describes(vars(base)[key]) for base in bases if key in vars(base)):
                yield f"{name}.{key}"


@pytest.mark.parametrize("view", VIEWS)
def test_parameters_are_described(view):
    missing = list(undescribed(importlib.import_module(f"fourviews.{view}")))
    assert not missing, f"no section Parameters: {', '.join(missing)}"


def test_a_missing_description_is_noticed():
    class Base:
        def told(self, a, b):
            """Parameters
            ----------
            """

        def untold(self, a, b): ...

        def one(self, a): ...

    class Child(Base):
        def __init__(self, a, b): ...

        def told(self, a, b): ...

    def function(a, b):
        """Words."""

    class Module:
        __all__ = ["Base", "Child", "function"]

    Module.Base, Module.Child, Module.function = Base, Child, staticmethod(function)
    assert list(undescribed(Module)) == ["Base.untold", "Child", "function"]
