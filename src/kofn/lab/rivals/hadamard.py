"""Hadamard matrices: entries +1 and -1, rows orthogonal. By Sylvester (powers of two), by Paley (from the squares of a
finite field with q elements: order q + 1 if q = 3 mod 4, order 2(q + 1) if q = 1 mod 4), and products of these.
"""

from __future__ import annotations

import itertools
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from kofn.core import BadInput, whole

Signs = NDArray[np.int8]


@lru_cache(maxsize=8)
def hadamard(order: int) -> Signs:
    """Return a Hadamard matrix of that order whose first row is all +1; read-only, since it is cached.

    >>> hadamard(4)
    array([[ 1,  1,  1,  1],
           [ 1, -1,  1, -1],
           [ 1,  1, -1, -1],
           [ 1, -1, -1,  1]], dtype=int8)
    """
    order = whole("order", order)
    if not is_order(order):
        above = next(each for each in itertools.count(order + 1) if is_order(each))
        below = largest_order(order)
        raise BadInput(
            f"no Hadamard matrix of order {order} can be made by Sylvester, Paley and products of them; "
            f"the nearest orders are {below} and {above}"
        )
    matrix = _made(order)
    matrix *= matrix[0].copy()
    matrix.flags.writeable = False
    return matrix


def largest_order(most: int) -> int:
    """Return the largest order up to `most`."""
    return next(order for order in range(most, 0, -1) if is_order(order))


@cache
def is_order(order: int) -> bool:
    """Return whether `hadamard` makes a matrix of this order: 1, 2, and most multiples of 4 (not 92)."""
    if order in (1, 2):
        return True
    return order % 4 == 0 and (_paley(order) is not None or _split(order) is not None)


def _made(order: int) -> Signs:
    if order == 1:
        return np.ones((1, 1), np.int8)
    if order & (order - 1) == 0:  # Sylvester
        half = _made(order // 2)
        return np.block([[half, half], [half, -half]])
    if q := _paley(order):
        return _paley_one(q) if q == order - 1 else _paley_two(q)
    split = _split(order)
    assert split is not None
    return np.kron(_made(split), _made(order // split))


def _split(order: int) -> int | None:
    """Return a factor of the order such that both factors are orders."""
    return next((a for a in range(2, order // 2 + 1) if order % a == 0 and is_order(a) and is_order(order // a)), None)


def _paley(order: int) -> int | None:
    """Return the q of Paley's construction of this order, if there is one."""
    for q, rest in ((order - 1, 3), (order // 2 - 1, 1)):
        if q % 4 == rest and _prime_power(q):
            return q
    return None


def _paley_one(q: int) -> Signs:
    """Return a matrix of order q + 1: I + S with S skew-symmetric, since -1 is not a square."""
    skew = np.ones((q + 1, q + 1), np.int8)
    skew[1:, 0] = -1
    skew[0, 0] = 0
    skew[1:, 1:] = _jacobsthal(q)
    return np.eye(q + 1, dtype=np.int8) + skew


def _paley_two(q: int) -> Signs:
    """Return a matrix of order 2(q + 1): a symmetric S with zero diagonal, each entry replaced by a 2 by 2 block."""
    symmetric = np.ones((q + 1, q + 1), np.int8)
    symmetric[0, 0] = 0
    symmetric[1:, 1:] = _jacobsthal(q)
    off, diagonal = np.array([[1, 1], [1, -1]], np.int8), np.array([[1, -1], [-1, -1]], np.int8)
    return np.kron(symmetric, off) + np.kron(np.eye(q + 1, dtype=np.int8), diagonal)


def _jacobsthal(q: int) -> Signs:
    """Return chi(a - b) for all elements a, b of the field with q elements: 1 for squares, -1 for others, 0 for 0."""
    power = _prime_power(q)
    assert power is not None
    p, e = power
    chi = np.zeros(q, np.int8)
    for exponent, element in enumerate(_powers(p, e)):
        chi[element] = -1 if exponent % 2 else 1
    weights = p ** np.arange(e)
    digits = np.arange(q)[:, None] // weights % p
    return chi[((digits[:, None] - digits) % p) @ weights]


def _powers(p: int, e: int) -> list[int]:
    """Return 1, x, x^2, ... in a field with p^e elements in which x generates all elements except 0.

    Elements are polynomials in x over the integers mod p, written as numbers with the coefficients as digits.
    """
    q = p**e
    for low in range(q):  # x^e = -(the polynomial `low`): try until x generates all
        reduce = [-(low // p**i) % p for i in range(e)]
        powers, element = [1], [1] + [0] * (e - 1)
        while len(powers) < q:
            top = element[-1]
            element = [(shifted + top * r) % p for shifted, r in zip([0, *element[:-1]], reduce, strict=True)]
            number = sum(digit * p**i for i, digit in enumerate(element))
            if number in (0, 1):
                break
            powers.append(number)
        if len(powers) == q - 1:
            return powers
    raise AssertionError(f"no field with {q} elements")


@cache
def _prime_power(q: int) -> tuple[int, int] | None:
    """Return (p, e) with q = p^e and p a prime, if q is a prime power."""
    if q < 2:
        return None
    p = next((each for each in range(2, int(q**0.5) + 1) if q % each == 0), q)
    e = 0
    while q % p == 0:
        q, e = q // p, e + 1
    return (p, e) if q == 1 else None
