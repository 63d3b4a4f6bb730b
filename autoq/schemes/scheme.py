"""QuantScheme: the dtype of a quantized tensor."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..errors import SchemeError, ShapeError
from .element import ElementFormat
from .element import element as find_element
from .scale import NVFP4_RULES, ScaleFormat
from .scale import scale as find_scale

ROUNDINGS = ("nearest", "stochastic", "stochastic8")
NONFINITE = ("propagate", "saturate", "raise")
CALIBRATIONS = ("abs_max", "abs_mean")
FIELDS = ("element", "block", "scale", "tensor_scale", "scale_rule", "rounding", "nonfinite", "calibration")

# Rounding, non-finite policy and calibration of the default choices.
DEFAULT_CHOICES = ("nearest", "propagate", "abs_max")
# Where a scheme's numbers have an established rule of their own; `round_up` everywhere else.
DEFAULT_RULES = {("e2m1", "ue4m3", True): "te", ("e2m1", "ue4m3", False): "nearest"}


class QuantScheme:
    """What a quantized tensor's values, blocks and scales are: its dtype.

    Immutable and hashable; equal where every field is equal.

    Args:
        element: Name (or record) of the element format.
        block: Extents of a block, aligned to the trailing axes; leading 1s are dropped.
            ``None`` makes the whole tensor one block. An int ``n`` is ``(n,)``.
        scale: Name (or record) of the block scale's format.
        tensor_scale: Whether one float32 scale a tensor multiplies the block scales.
        scale_rule: How a block's scale is chosen: ``round_up``, ``nearest``; for ue8m0 ``round_up``,
            ``floor``, ``ceil``, ``even``; under a tensor scale also ``te``, ``torchao``, ``four_over_six``.
        rounding: ``nearest``, ``stochastic`` (16-bit draws) or ``stochastic8``.
        nonfinite: ``propagate``, ``saturate`` or ``raise``.
        calibration: ``abs_max`` or ``abs_mean``.

    Raises:
        SchemeError: If a name is unknown or the fields do not go together.

    Example:
        >>> QuantScheme("e4m3", block=(1, 32), scale="ue8m0")
        QuantScheme('e4m3', block=(32,), scale='ue8m0')
        >>> QuantScheme("e4m3", scale="ue8m0").name
        'mxfp8'
    """

    __slots__ = (*FIELDS, "_key", "_hash")
    element: str
    block: tuple[int, ...] | None
    scale: str
    tensor_scale: bool
    scale_rule: str
    rounding: str
    nonfinite: str
    calibration: str
    _key: tuple[Any, ...]
    _hash: int

    def __init__(
        self,
        element: str | ElementFormat,
        block: Iterable[int] | int | None = (32,),
        scale: str | ScaleFormat = "f32",
        tensor_scale: bool = False,
        scale_rule: str = "round_up",
        rounding: str = "nearest",
        nonfinite: str = "propagate",
        calibration: str = "abs_max",
    ) -> None:
        key = (
            getattr(element, "name", element),
            _trimmed(block),
            getattr(scale, "name", scale),
            tensor_scale,
            scale_rule,
            rounding,
            nonfinite,
            calibration,
        )
        for name, value in zip(FIELDS, key, strict=True):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_key", key)
        _validate(self)
        object.__setattr__(self, "_hash", hash(key))

    def __setattr__(self, name: str, value: Any) -> None:
        raise SchemeError(
            f"{name} of a QuantScheme can't be set", "schemes are immutable", f"Use scheme.replace({name}=…)."
        )

    def __delattr__(self, name: str) -> None:
        raise SchemeError(f"{name} of a QuantScheme can't be deleted", "schemes are immutable")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        # NotImplemented rather than False: NumPy dtypes then say False too, from either side.
        return self._key == other._key if isinstance(other, QuantScheme) else NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        # Rebuilt from its fields: hashes of strings differ between processes.
        return QuantScheme, self._key

    def __repr__(self) -> str:
        shown = [repr(self.element), f"block={self.block}", f"scale={self.scale!r}"]
        if self.tensor_scale:
            shown.append("tensor_scale=True")
        return f"QuantScheme({', '.join(shown + self._choices('round_up'))})"

    def _choices(self, rule: str) -> list[str]:
        usual = zip(FIELDS[4:], (rule, *DEFAULT_CHOICES), strict=True)
        return [f"{f}={getattr(self, f)!r}" for f, default in usual if getattr(self, f) != default]

    @property
    def element_format(self) -> ElementFormat:
        """The record of the element format."""
        return find_element(self.element)

    @property
    def scale_format(self) -> ScaleFormat:
        """The record of the block scale's format."""
        return find_scale(self.scale)

    @property
    def element_bits(self) -> int:
        """Bits a value takes without scales: its width when dtypes are compared."""
        return self.element_format.bits

    @property
    def bits_per_value(self) -> float:
        """Bits a value takes with its share of the block scale.

        Example:
            >>> QuantScheme("e2m1", block=(16,), scale="ue4m3").bits_per_value
            4.5
        """
        share = 0.0 if self.block is None else self.scale_format.bits / math.prod(self.block)
        return self.element_bits + share

    @property
    def name(self) -> str:
        """The catalog's name, or the fields spelled out: ``int8[64, f16]``.

        Example:
            >>> QuantScheme("e4m3", scale="ue8m0", scale_rule="floor").name
            "mxfp8(scale_rule='floor')"
        """
        from .catalog import catalog_name

        plain = self.default_choices()
        block = "tensor" if self.block is None else "x".join(map(str, self.block))
        levels = f"{self.scale}, f32" if self.tensor_scale else self.scale
        base = catalog_name(plain) or f"{self.element}[{block}, {levels}]"
        choices = self._choices(plain.scale_rule)
        return f"{base}({', '.join(choices)})" if choices else base

    def replace(self, **changes: Any) -> QuantScheme:
        """The scheme with some fields changed.

        Example:
            >>> QuantScheme("int8").replace(block=(64,), scale="f16")
            QuantScheme('int8', block=(64,), scale='f16')
        """
        unknown = [name for name in changes if name not in FIELDS]
        if unknown:
            raise SchemeError(
                f"QuantScheme has no field {unknown[0]!r}", ", ".join(FIELDS), "Correct the name."
            )
        return QuantScheme(**{**dict(zip(FIELDS, self._key, strict=True)), **changes})

    def innermost(self, rank: int | None = None) -> QuantScheme:
        """The scheme that results of ops are encoded in: a block of one axis runs along the last.

        Args:
            rank: Axes of the tensor; a tile that has more runs, as its product, along the last axis.

        Example:
            >>> QuantScheme("int8", block=(32, 1)).innermost().block
            (32,)
            >>> QuantScheme("int8", block=(16, 16)).innermost(rank=1).block
            (256,)
        """
        if self.block is None or len(self.block) == 1:
            return self
        if sum(extent > 1 for extent in self.block) > 1 and (rank is None or rank >= len(self.block)):
            return self
        return self.replace(block=(math.prod(self.block),))

    def default_choices(self) -> QuantScheme:
        """The same numbers and blocks, with the encode choices these numbers come with.

        Example:
            >>> QuantScheme("e2m1", (16,), "ue4m3", tensor_scale=True).default_choices().scale_rule
            'te'
        """
        rule = DEFAULT_RULES.get((self.element, self.scale, self.tensor_scale), "round_up")
        if self._key[4:] == (rule, *DEFAULT_CHOICES):
            return self
        return QuantScheme(self.element, self.block, self.scale, self.tensor_scale, rule)

    def canonical(self) -> QuantScheme:
        """What two schemes share that are the same dtype: the block's axis and the choices dropped.

        Example:
            >>> across = QuantScheme("e4m3", block=(32, 1), scale="ue8m0", scale_rule="floor")
            >>> across.canonical() == QuantScheme("e4m3", scale="ue8m0")
            True
        """
        return self.innermost().default_choices()

    def extents(self, rank: int) -> tuple[int, ...]:
        """Extent of a block along each of ``rank`` storage axes; 0 is the whole axis.

        Raises:
            ShapeError: If the block has more axes than the tensor.

        Example:
            >>> QuantScheme("int8", block=(16, 16)).extents(3)
            (1, 16, 16)
        """
        if self.block is None:
            return (0,) * rank
        if len(self.block) > rank:
            raise ShapeError(
                f"{self.name}: blocks of {len(self.block)} axes on a tensor of {rank}",
                f"at least {len(self.block)} axes",
                "Reshape the tensor, or use a scheme whose block has fewer axes.",
            )
        return (1,) * (rank - len(self.block)) + self.block


def _trimmed(block: Any) -> tuple[int, ...] | None:
    """The block as a tuple without leading 1s."""
    if block is None:
        return None
    try:
        extents = tuple(extent.__index__() for extent in (block if hasattr(block, "__iter__") else (block,)))
    except AttributeError:
        extents = ()
    if not extents or min(extents) < 1:
        raise SchemeError(
            f"block={block!r}",
            "None, or a tuple of extents of at least 1",
            "Pass block=(32,), or None for one block a tensor.",
        )
    while len(extents) > 1 and extents[0] == 1:
        extents = extents[1:]
    return extents


def _validate(scheme: QuantScheme) -> None:
    element, scale = scheme.element_format, scheme.scale_format
    if scheme.tensor_scale and not scale.two_level_rules:
        raise SchemeError(
            f"a tensor scale over {scale.name} block scales",
            "ue4m3 or f16 block scales",
            "Leave tensor_scale out, or change the scale.",
        )
    if scheme.tensor_scale and (scheme.block is None or scheme.calibration != "abs_max"):
        raise SchemeError(
            f"a tensor scale with block={scheme.block}, calibration={scheme.calibration!r}",
            "a block, and abs_max",
            "Leave tensor_scale out, or change the other.",
        )
    rules = scale.two_level_rules if scheme.tensor_scale else scale.rules
    if element.name != "e2m1":
        rules = tuple(rule for rule in rules if rule not in NVFP4_RULES)
    levels = " under a tensor scale" if scheme.tensor_scale else ""
    _check_choice(scheme, "scale_rule", rules, f" for {element.name} with {scale.name} scales{levels}")
    _check_choice(scheme, "tensor_scale", (False, True))
    _check_choice(scheme, "rounding", ROUNDINGS)
    _check_choice(scheme, "nonfinite", NONFINITE)
    _check_choice(scheme, "calibration", CALIBRATIONS)


def _check_choice(scheme: QuantScheme, field: str, allowed: tuple[Any, ...], where: str = "") -> None:
    value = getattr(scheme, field)
    if value not in allowed:
        raise SchemeError(
            f"{field}={value!r}{where}", " | ".join(map(str, allowed)), f"Pass {field}={allowed[0]!r}."
        )
