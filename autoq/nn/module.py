"""Module: a tree of parameters, buffers and modules, built by plain attribute assignment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from reprlib import recursive_repr
from typing import Any, Self

from autoq.devices import resolve
from autoq.errors import ArgumentError
from autoq.nn.state import check_state, move, put, snapshot
from autoq.tape.parameter import Parameter, QParameter
from autoq.tape.tensor import Tensor, tensor


class Module:
    """Base of everything with parameters: assign parameters and modules as attributes, write ``forward``.

    Parameters and buffers inhibit: they never decide the dtype of a result (S3, S9).
    A module or a parameter that is reachable by two names appears once, under the first.

    Example:
        >>> import autoq as aq
        >>> class Scale(aq.nn.Module):
        ...     def __init__(self):
        ...         self.gain = aq.Parameter([1.0, 2.0])
        ...     def forward(self, x):
        ...         return x * self.gain
        >>> model = Scale()
        >>> [name for name, _ in model.named_parameters()]
        ['gain']
        >>> model(aq.tensor([3.0, 4.0])).numpy()
        array([3., 8.], dtype=float32)
    """

    training: bool = True
    _buffer_names: frozenset[str] = frozenset()

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return self.forward(*inputs, **options)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Compute the output; every module writes its own.

        Raises:
            NotImplementedError: If the class has none.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no forward(). Define forward(self, x) in the class."
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, (list, tuple, dict)):
            _refuse_hidden_parameters(self, name, value)
        object.__setattr__(self, name, value)

    def register_buffer(self, name: str, value: Any) -> None:
        """Keep ``value`` as an inhibiting tensor that is saved with the module but not trained.

        Args:
            name: The attribute it is read by.
            value: A tensor or what ``aq.tensor`` takes; copied.

        Raises:
            ArgumentError: If the attribute exists and is no buffer.

        Example:
            >>> import autoq as aq
            >>> model = aq.nn.Module()
            >>> model.register_buffer("mean", [0.5])
            >>> model.mean.propagation.name
            'INHIBIT'
        """
        if not isinstance(name, str) or not name or "." in name:
            raise ArgumentError(
                f"{type(self).__name__}.register_buffer: the name {name!r}.",
                "strings without a dot",
                "Choose another name; state dicts join the names of modules by dots.",
            )
        if hasattr(self, name) and name not in self._buffer_names:
            raise ArgumentError(
                f"{type(self).__name__}.register_buffer: {name!r} is an attribute already.",
                "a name that is free, or that of a buffer",
                "Choose another name.",
            )
        self._buffer_names = self._buffer_names | {name}
        setattr(self, name, tensor(value).inhibit())

    def children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly below this one, with their names, in the order of assignment."""
        return ((name, value) for name, value in vars(self).items() if isinstance(value, Module))

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all below it, parents first, each once, with dotted names ("" for this one)."""
        return _walk(self, prefix, set())

    def modules(self) -> Iterator[Module]:
        """This module and all below it, parents first, each once."""
        return (module for _, module in self.named_modules())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Every parameter once, with its dotted name."""
        return _members(self, _own_parameters)

    def parameters(self) -> Iterator[Parameter]:
        """Every parameter once, as an optimizer takes them."""
        return (parameter for _, parameter in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Every buffer once, with its dotted name."""
        return _members(self, _own_buffers)

    def buffers(self) -> Iterator[Tensor]:
        """Every buffer once."""
        return (buffer for _, buffer in self.named_buffers())

    def _named_tensors(self) -> dict[str, Tensor]:
        return {**dict(self.named_parameters()), **dict(self.named_buffers())}

    def to(self, device: str) -> Self:
        """Move all parameters and buffers to a device, with their gradients, and return the module.

        The tensors stay the same objects, so an optimizer that has them goes on with them.

        Args:
            device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.

        Raises:
            DeviceError: The device can't be used; the module is left as it was.

        Example:
            >>> import autoq as aq
            >>> model = aq.nn.Linear(4, 2, rng=aq.Generator(0)).to("cpu")
            >>> model.weight.device
            'cpu'
        """
        device = resolve(device)
        for member in self._named_tensors().values():
            move(member, device)
        return self

    def state_dict(self) -> dict[str, Any]:
        """The values of all parameters and buffers by dotted name: a snapshot that training leaves alone.

        Returns:
            NumPy arrays for dense values, QTensors on the CPU for packed ones, as ``aq.io.save`` takes them.

        Example:
            >>> import autoq as aq
            >>> list(aq.nn.Linear(4, 2, rng=aq.Generator(0)).state_dict())
            ['weight', 'bias']
        """
        return {name: snapshot(member.value) for name, member in self._named_tensors().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over all values of ``state``, or none if any of them does not fit.

        Args:
            state: One entry (array, QTensor or tensor) for each parameter and buffer, of its shape and dtype.

        Raises:
            StateError: Naming every entry that is missing, unknown, misshapen or of another dtype; the module
                is left as it was.

        Example:
            >>> import autoq as aq
            >>> a, b = (aq.nn.Linear(4, 2, rng=aq.Generator(seed)) for seed in (0, 1))
            >>> b.load_state_dict(a.state_dict())
            >>> bool((a.weight.numpy() == b.weight.numpy()).all())
            True
        """
        own = self._named_tensors()
        values = check_state(type(self).__name__, {name: member.value for name, member in own.items()}, state)
        for name, member in own.items():
            put(member, values[name])

    def train(self, mode: bool = True) -> Module:
        """Switch this module and all below it to training behaviour (dropout draws); returns the module."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """Switch this module and all below it to inference behaviour; returns the module."""
        return self.train(False)

    def apply(self, function: Callable[[Module], Any]) -> Module:
        """Call ``function`` on every module below and then on this one; returns the module.

        Example:
            >>> import autoq as aq
            >>> model = aq.nn.Sequential(aq.nn.ReLU(), aq.nn.Tanh())
            >>> _ = model.apply(lambda module: print(type(module).__name__))
            ReLU
            Tanh
            Sequential
        """
        for module in _children_first(self):
            function(module)
        return self

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for parameter in self.parameters():
            parameter.grad = None

    def describe(self) -> str:
        """The constructor arguments that ``repr`` shows; override it in a module that has some."""
        return ""

    @recursive_repr("...")  # of a module that contains itself
    def __repr__(self) -> str:
        lines = [f"({name}): {child!r}".replace("\n", "\n  ") for name, child in self.children()]
        name = type(self).__name__
        if not lines:
            return f"{name}({self.describe()})"
        body = "".join(f"\n  {line}" for line in lines)
        return f"{name}({self.describe()}{body}\n)"


def _walk(module: Module, name: str, seen: set[int]) -> Iterator[tuple[str, Module]]:
    if id(module) in seen:
        return
    seen.add(id(module))
    yield name, module
    for child_name, child in module.children():
        yield from _walk(child, f"{name}.{child_name}" if name else child_name, seen)


def _children_first(root: Module) -> list[Module]:
    order: list[Module] = []
    seen: set[int] = set()

    def visit(module: Module) -> None:
        if id(module) not in seen:
            seen.add(id(module))
            for _, child in module.children():
                visit(child)
            order.append(module)

    visit(root)
    return order


def _own_parameters(module: Module) -> Iterator[tuple[str, Any]]:
    return (
        (name, value) for name, value in vars(module).items() if isinstance(value, (Parameter, QParameter))
    )


def _own_buffers(module: Module) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in vars(module).items() if name in module._buffer_names)


def _members(root: Module, own: Callable[[Module], Iterator[tuple[str, Any]]]) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for path, module in root.named_modules():
        for name, value in own(module):
            if id(value) not in seen:
                seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value


def _refuse_hidden_parameters(module: Module, name: str, value: Any) -> None:
    items = value.values() if isinstance(value, dict) else value
    if any(isinstance(item, (Module, Parameter, QParameter)) for item in items):
        container = "ModuleDict" if isinstance(value, dict) else "ModuleList"
        raise ArgumentError(
            f"{type(module).__name__}.{name}: a {type(value).__name__} hides its modules and parameters "
            "from training and saving.",
            "modules and parameters as attributes",
            f"Wrap modules as nn.{container}(...); assign each parameter to its own attribute.",
        )
