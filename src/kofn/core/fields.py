"""State declared as data: how each field of a policy is written to a record, and checked when it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from kofn.core.checks import FloatArray, IntArray, finite_numbers, subset_of, whole, whole_numbers
from kofn.core.errors import BadRecord

if TYPE_CHECKING:
    from kofn.core.policy import Policy

ROUNDING = 1e-9
"""Relative slack for totals that were added up in floating point."""


@dataclass(frozen=True)
class Field:
    """A field of a policy's state: the field `name` is the attribute `_name`, and the key `name` of the record.

    `dump(value)` returns plain values; `load(name, plain, policy)` checks them and returns the value. The values of a
    `flat` field are keys of the state themselves.
    """

    dump: Callable[[Any], Any]
    load: Callable[[str, Any, Policy], Any]
    flat: bool = False


class Part(Protocol):
    """An object that can be saved and restored, such as a posterior."""

    def state(self) -> Any:
        """Return plain values."""

    @classmethod
    def load(cls, state: Any, n_arms: int, k: int) -> Self:
        """Return the object that `state` describes, or raise BadRecord."""


def integer(least: int = 0) -> Field:
    """Return a field for a whole number of at least `least`."""
    return Field(int, lambda name, plain, _: whole(name, plain, least=least))


def number(*, above: float, most: float) -> Field:
    """Return a field for a number above `above` and at most `most`."""

    def load(name: str, plain: Any, policy: Policy) -> float:
        del policy
        value = finite_numbers(name, plain)
        if value.shape != () or not above < value <= most:
            raise BadRecord(f"{name} must be a number above {above:g} and at most {most:g}; got {plain!r}")
        return float(value)

    return Field(float, load)


def integers(length: str = "n_arms") -> Field:
    """Return a field for an array of whole numbers; `length` is the policy's attribute with its length."""
    return Field(np.ndarray.tolist, lambda name, plain, of: _sized(name, whole_numbers(name, plain), of, length))


def numbers(length: str = "n_arms") -> Field:
    """Return a field for an array of finite numbers."""
    return Field(np.ndarray.tolist, lambda name, plain, of: _sized(name, finite_numbers(name, plain), of, length))


def flags(length: str = "n_arms") -> Field:
    """Return a field for an array of booleans, written as 0 and 1."""

    def load(name: str, plain: Any, policy: Policy) -> Any:
        array = _sized(name, whole_numbers(name, plain), policy, length)
        if array.size and array.max() > 1:
            raise BadRecord(f"{name} must be 0 or 1")
        return array == 1

    return Field(lambda value: value.astype(int).tolist(), load)


def subset() -> Field:
    """Return a field for a subset of K arms."""
    return Field(list, lambda _, plain, of: subset_of(plain, of.n_arms, of.k))


def arms() -> Field:
    """Return a field for a list of up to K different arms, in any order."""

    def load(name: str, plain: Any, policy: Policy) -> list[int]:
        chosen = whole_numbers(name, plain)
        if chosen.ndim != 1 or chosen.size > policy.k or np.unique(chosen).size != chosen.size:
            raise BadRecord(f"{name} must be up to {policy.k} different arms")
        if chosen.size and chosen.max() >= policy.n_arms:
            raise BadRecord(f"{name} must be arms from 0 to {policy.n_arms - 1}")
        listed: list[int] = chosen.tolist()
        return listed

    return Field(list, load)


def part(kind: type[Part], *, flat: bool = False) -> Field:
    """Return a field for an object with `state()` and `load(state, n_arms, k)`."""
    return Field(lambda value: value.state(), lambda _, plain, of: kind.load(plain, of.n_arms, of.k), flat)


class Fields:
    """The fields of a policy, by name; their order is that of the record."""

    def __init__(self, **fields: Field) -> None:
        self._fields = fields

    def dump(self, policy: Policy) -> dict[str, Any]:
        """Return the fields of the policy as plain values."""
        state: dict[str, Any] = {}
        for name, field in self._fields.items():
            plain = field.dump(getattr(policy, f"_{name}"))
            state |= plain if field.flat else {name: plain}
        return state

    def load(self, state: Mapping[str, Any], policy: Policy) -> None:
        """Set the fields of the policy from plain values, or raise."""
        for name, field in self._fields.items():
            setattr(policy, f"_{name}", field.load(name, state if field.flat else state[name], policy))


def check_totals(count: IntArray, total: FloatArray, *, most: float = 1.0, slack: float = 0.0) -> None:
    """Raise BadRecord unless each total is from 0 to `most` times its count, up to the relative `slack`."""
    if not ((total >= -slack * count) & (total <= (most + slack) * count)).all():
        raise BadRecord("a total must be between 0 and what its count of plays can earn")


def _sized(name: str, array: Any, policy: Policy, length: str) -> Any:
    expected = getattr(policy, length)
    if array.shape != (expected,):
        raise BadRecord(f"{name} must have {expected:,} numbers; got shape {array.shape}")
    return array
