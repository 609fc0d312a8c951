"""State declared as data: how each field of a policy is written to a record, and checked when it is read.

A policy declares its fields; a field may be a `Part`, a dataclass that declares fields too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np

from kofn.core.checks import FloatArray, IntArray, finite_numbers, subset_of, whole, whole_numbers
from kofn.core.errors import BadRecord

if TYPE_CHECKING:
    from kofn.core.policy import Policy

Shape: TypeAlias = Callable[[Any], tuple[int, ...] | None]
"""The shape of an array of this policy; None for a list of any length."""


@dataclass(frozen=True)
class Field:
    """One of the `Fields` of a policy or a part.

    `dump(value)` returns plain values; `load(name, plain, policy)` checks them and returns the value. The values of a
    `flat` field are keys of the state themselves.
    """

    dump: Callable[[Any], Any]
    load: Callable[[str, Any, Policy], Any]
    flat: bool = False


class Fields:
    """The fields of a policy or a part, by name, in the order of the record."""

    def __init__(self, **fields: Field) -> None:
        self._fields = fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def dump(self, of: object, prefix: str = "") -> dict[str, Any]:
        """Return the fields of a policy or a part as plain values; the field `name` is the attribute prefix + name."""
        state: dict[str, Any] = {}
        for name, field in self._fields.items():
            value = getattr(of, prefix + name)
            state |= field.dump(value) if field.flat else {name: field.dump(value)}
        return state

    def load(self, state: Mapping[str, Any], policy: Policy) -> Iterator[tuple[str, Any]]:
        """Return the names and the checked values of the fields, one after another, or raise."""
        for name, field in self._fields.items():
            yield name, field.load(name, state if field.flat else state[name], policy)


class Part:
    """A part of a policy's state, such as a posterior: a dataclass that declares `fields`.

    The field `name` is the attribute `name`, and the key `name` of the record.
    """

    fields: ClassVar[Fields]

    def state(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return self.fields.dump(self)

    @classmethod
    def load(cls, state: Mapping[str, Any], policy: Policy) -> Self:
        """Return the part of this policy that `state` describes, or raise."""
        part = cls(**dict(cls.fields.load(state, policy)))
        part._loaded(policy)
        return part

    def _loaded(self, policy: Policy) -> None:
        """Check the loaded fields against each other, or raise BadRecord."""
        del policy


# One number.


def integer(least: int = 0) -> Field:
    """Return a field for a whole number of at least `least`."""
    return Field(int, lambda name, plain, _: whole(name, plain, least=least))


def number(*, above: float = -math.inf, most: float = math.inf) -> Field:
    """Return the field of a finite number above `above` and at most `most`."""

    def load(name: str, plain: Any, policy: Policy) -> float:
        del policy
        value = finite_numbers(name, plain)
        if value.shape != ():
            raise BadRecord(f"{name} must be one number; got {plain!r}")
        if not above < value <= most:
            upper = f" and at most {most:g}" if most < math.inf else ""
            raise BadRecord(f"{name} must be a number above {above:g}{upper}; got {plain!r}")
        return float(value)

    return Field(float, load)


def text() -> Field:
    """Return the field of a text."""

    def load(name: str, plain: Any, policy: Policy) -> str:
        del policy
        if not isinstance(plain, str):
            raise BadRecord(f"{name} must be a text; got {plain!r}")
        return plain

    return Field(str, load)


def by_name() -> Field:
    """Return the field of positive numbers by name."""

    def load(name: str, plain: Any, policy: Policy) -> dict[str, float]:
        if not isinstance(plain, dict):
            raise BadRecord(f"{name} must be numbers by name; got {plain!r}")
        positive = number(above=0)
        return {str(key): positive.load(f"{name} of {key}", value, policy) for key, value in plain.items()}

    return Field(dict, load)


# Arrays.


def per_arm(policy: Policy) -> tuple[int, ...]:
    """Return the shape of an array with a number for each arm."""
    return (policy.n_arms,)


def any_length(policy: Policy) -> None:
    """Return the shape of an array of any length."""
    del policy


def integers(shape: Shape = per_arm, *, most: int | None = None) -> Field:
    """Return the field of an array of whole numbers from 0 to `most`; a matrix is written as one list."""

    def load(name: str, plain: Any, policy: Policy) -> Any:
        array = whole_numbers(name, plain)
        if most is not None and array.size and array.max() > most:
            raise BadRecord(f"{name} must be whole numbers from 0 to {most}; got {array.max()}")
        return _shaped(name, array, shape(policy))

    return Field(lambda value: value.ravel().tolist(), load)


def numbers(shape: Shape = per_arm, *, above: float = -math.inf, least: float = -math.inf) -> Field:
    """Return the field of an array of finite numbers; a matrix is written as one list."""

    def load(name: str, plain: Any, policy: Policy) -> Any:
        array = _shaped(name, finite_numbers(name, plain), shape(policy))
        if not ((array > above) & (array >= least)).all():
            bound = f"of at least {least:g}" if least > above else f"above {above:g}"
            raise BadRecord(f"{name} must be numbers {bound}; got {array.min():g}")
        return array

    return Field(lambda value: value.ravel().tolist(), load)


def flags(shape: Shape = per_arm) -> Field:
    """Return the field of an array of booleans, written as 0 and 1."""
    numeric = integers(shape, most=1)
    return Field(lambda value: numeric.dump(value.astype(int)), lambda *plain: numeric.load(*plain) == 1)


def symmetric(triangle: Callable[[int], Any]) -> Field:
    """Return the field of a symmetric matrix, of which one triangle is written: np.tril_indices or np.triu_indices."""

    def load(name: str, plain: Any, policy: Policy) -> FloatArray:
        del policy
        half = finite_numbers(name, plain)
        size = (math.isqrt(8 * half.size + 1) - 1) // 2
        if half.shape != (size * (size + 1) // 2,):
            raise BadRecord(f"{name} must be one triangle of a symmetric matrix; got shape {half.shape}")
        matrix = np.zeros((size, size))
        matrix[triangle(size)] = half
        matrix.T[triangle(size)] = half
        return matrix

    return Field(lambda matrix: matrix[triangle(len(matrix))].tolist(), load)


# Arms.


def subset(*, optional: bool = False) -> Field:
    """Return the field of a subset of K arms; if `optional`, of None, written as an empty list."""

    def load(name: str, plain: Any, policy: Policy) -> Any:
        del name
        return None if optional and plain == [] else subset_of(plain, policy.n_arms, policy.k)

    return Field(lambda value: list(value or ()), load)


def subsets() -> Field:
    """Return the field of a matrix of at least one subset, all different; its rows are sorted."""

    def load(name: str, plain: Any, policy: Policy) -> IntArray:
        rows = whole_numbers(name, plain)
        if rows.ndim != 2 or rows.shape[1] != policy.k or not len(rows):
            raise BadRecord(f"{name} must be rows of {policy.k} arms; got shape {rows.shape}")
        if rows.max() >= policy.n_arms or (np.diff(rows, axis=1) <= 0).any():
            raise BadRecord(f"{name} must be rows of different arms from 0 to {policy.n_arms - 1}, sorted")
        if len(np.unique(rows, axis=0)) != len(rows):
            raise BadRecord(f"{name} must not list a subset twice")
        return rows.astype(np.min_scalar_type(policy.n_arms - 1))

    return Field(np.ndarray.tolist, load)


def arms() -> Field:
    """Return a field for a list of up to K different arms, in any order."""

    def load(name: str, plain: Any, policy: Policy) -> list[int]:
        chosen = whole_numbers(name, plain)
        if chosen.ndim != 1 or chosen.size > policy.k or np.unique(chosen).size != chosen.size:
            raise BadRecord(f"{name} must be at most {policy.k} arms, all different; got {plain!r}")
        if chosen.size and chosen.max() >= policy.n_arms:
            raise BadRecord(f"{name} must be arms from 0 to {policy.n_arms - 1}; got {plain!r}")
        listed: list[int] = chosen.tolist()
        return listed

    return Field(list, load)


# Parts.


def part(kind: type[Part], *, flat: bool = False) -> Field:
    """Return the field of a part; see `Field` for `flat`."""
    return Field(Part.state, lambda _, plain, policy: kind.load(plain, policy), flat)


def inner_policy() -> Field:
    """Return the field `inner` of a policy around another policy, which is its attribute `_inner`."""

    def load(_: str, state: Any, policy: Any) -> Policy:
        within: Policy = policy._inner
        within.load(state)
        return within

    return Field(lambda within: within.state(), load)


def optional(name: str, kind: type[Part]) -> Field:
    """Return the field `name` of a part that is written only if it differs from `kind()`, as which it starts."""

    def dump(value: Part) -> dict[str, Any]:
        state = value.state()
        return {} if state == kind().state() else {name: state}

    def load(_: str, state: Any, policy: Policy) -> Part:
        return kind.load(state[name], policy) if name in state else kind()

    return Field(dump, load, flat=True)


def each(field: Field, kind: type = list) -> Field:
    """Return the field of a list, or another `kind` of sequence, of values that `field` describes."""

    def load(name: str, plain: Any, policy: Policy) -> Any:
        if not isinstance(plain, list):
            raise BadRecord(f"{name} must be a list; got {plain!r}")
        return kind(field.load(name, value, policy) for value in plain)

    return Field(lambda values: [field.dump(value) for value in values], load)


def of_policy() -> Field:
    """Return the field of a part that is an attribute of the policy with the same name; it is not written."""
    return Field(lambda _: {}, lambda name, _, policy: getattr(policy, name), flat=True)


def listed(kind: type[Part]) -> Field:
    """Return the field of a part that is written as the list of its values, without their names."""

    def load(name: str, plain: Any, policy: Policy) -> Part:
        names = list(kind.fields)
        if not isinstance(plain, list) or len(plain) != len(names):
            raise BadRecord(f"{name} must be a list of {len(names)} values ({', '.join(names)}); got {plain!r}")
        return kind.load(dict(zip(names, plain, strict=True)), policy)

    return Field(lambda value: list(value.state().values()), load)


def one_of(key: str, **kinds: type[Part]) -> Field:
    """Return the field of a part of one of several kinds, by name; the name is written as `key`."""
    names = {kind: name for name, kind in kinds.items()}

    def load(_: str, state: Any, policy: Policy) -> Part:
        if not isinstance(state[key], str) or state[key] not in kinds:
            raise BadRecord(f"{key} must be one of {', '.join(kinds)}; got {state[key]!r}")
        return kinds[state[key]].load(state, policy)

    return Field(lambda value: {key: names[type(value)], **value.state()}, load, flat=True)


def check_totals(count: IntArray, total: FloatArray, *, most: float = 1.0, slack: float = 0.0) -> None:
    """Raise BadRecord unless each total is from 0 to `most` times its count, up to the relative `slack`."""
    if not ((total >= -slack * count) & (total <= (most + slack) * count)).all():
        raise BadRecord("a total must be between 0 and what its count of plays can earn")


def _shaped(name: str, array: Any, shape: tuple[int, ...] | None) -> Any:
    if shape is None and array.ndim != 1:
        raise BadRecord(f"{name} must be a list of numbers; got shape {array.shape}")
    if shape is not None and array.shape != (math.prod(shape),):
        expected = " * ".join(f"{length:,}" for length in shape)
        raise BadRecord(f"{name} must have {expected} numbers; got shape {array.shape}")
    return array if shape is None else array.reshape(shape)
