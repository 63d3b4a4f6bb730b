"""Containers: modules kept in a sequence or by name, and modules called one after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from autoq.errors import ArgumentError, IndexingError
from autoq.nn.module import Module


class ModuleList(Module):
    """A list of modules whose parameters belong to the model.

    Args:
        modules: The modules, in order; they are named "0", "1", ….

    Raises:
        ArgumentError: If an item is not a module.

    Example:
        >>> import autoq as aq
        >>> layers = aq.nn.ModuleList([aq.nn.ReLU(), aq.nn.Tanh()])
        >>> len(layers), layers[-1]
        (2, Tanh())
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        if not isinstance(modules, Iterable):
            raise ArgumentError(
                f"{type(self).__name__} of a {type(modules).__name__}.", "a list of modules", "Pass a list."
            )
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> None:
        """Add a module at the end."""
        name = str(len(self))
        setattr(self, name, _checked(self, name, module))

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __iter__(self) -> Iterator[Module]:
        return (module for _, module in self.children())

    def __getitem__(self, index: int) -> Module:
        modules = list(self)
        if not isinstance(index, int | np.integer):
            raise IndexingError(
                f"{type(self).__name__}: index {index!r}.",
                "integers",
                "Take a slice of list(modules), and build a container of it.",
            )
        if not -len(modules) <= index < len(modules):
            raise IndexingError(
                f"{type(self).__name__}: index {index} of {len(modules)} modules.",
                f"{-len(modules)} to {len(modules) - 1}",
                "Use an index inside the list.",
            )
        return modules[index]


class ModuleDict(Module):
    """Modules by name, whose parameters belong to the model.

    Args:
        modules: Name to module.

    Raises:
        ArgumentError: If a value is not a module, or a name is already an attribute of Module.

    Example:
        >>> import autoq as aq
        >>> heads = aq.nn.ModuleDict({"digit": aq.nn.Linear(8, 10, rng=aq.Generator(0))})
        >>> heads["digit"].weight.shape
        (10, 8)
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        if not isinstance(modules, Mapping | None):
            raise ArgumentError(
                f"{type(self).__name__} of a {type(modules).__name__}.", "modules by name", "Pass a dict."
            )
        for name, module in (modules or {}).items():
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        if not isinstance(name, str) or hasattr(type(self), name) or "." in name:
            raise ArgumentError(
                f"{type(self).__name__}: a module can't be named {name!r}.",
                "strings without a dot that Module does not use itself",
                "Choose another name.",
            )
        setattr(self, name, _checked(self, name, module))

    def __getitem__(self, name: str) -> Module:
        return dict(self.children())[name]

    def __len__(self) -> int:
        return sum(1 for _ in self.children())

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.children())


class Sequential(ModuleList):
    """Modules called one after another, each on the output of the one before.

    Args:
        *modules: The modules, in order.

    Raises:
        ArgumentError: If an argument is not a module.

    Example:
        >>> import autoq as aq
        >>> rng = aq.Generator(0)
        >>> aq.nn.Sequential(aq.nn.Linear(64, 32, rng=rng), aq.nn.ReLU(), aq.nn.Linear(32, 10, rng=rng))
        Sequential(
          (0): Linear(64, 32)
          (1): ReLU()
          (2): Linear(32, 10)
        )
    """

    def __init__(self, *modules: Module) -> None:
        super().__init__(modules)

    def forward(self, x: Any) -> Any:
        """The output of the last module; ``x`` itself if there is none."""
        for _, module in self.children():
            x = module(x)
        return x


def _checked(container: Module, name: str, module: Any) -> Module:
    if not isinstance(module, Module):
        called = "Pass a module, for example nn.ReLU() with its parentheses."
        raise ArgumentError(
            f"{type(container).__name__}: item {name!r} is {_kind(module)}.",
            "instances of nn.Module",
            "Unpack it with a star: *modules." if isinstance(module, (list, tuple)) else called,
        )
    return module


def _kind(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
