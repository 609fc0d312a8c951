"""Hadamard matrices: what they are, which orders there are, and the fields behind them."""

import numpy as np
import pytest

from kofn import BadInput
from kofn.lab.rivals import hadamard as module
from kofn.lab.rivals.hadamard import hadamard, is_order, largest_order
from tests.cases import for_each

MISSING = [92, 116, 156, 172, 184, 188, 232, 236]  # multiples of 4 up to 256 that neither construction reaches
ORDERS = [1, 2, *(order for order in range(4, 257, 4) if order not in MISSING)]


def test_the_orders_there_are() -> None:
    assert [order for order in range(1, 257) if is_order(order)] == ORDERS


@for_each("order", ORDERS)
def test_rows_are_orthogonal_and_the_first_is_all_ones(order: int) -> None:
    matrix = hadamard(order).astype(int)
    assert matrix.shape == (order, order)
    assert (np.abs(matrix) == 1).all()
    assert (matrix[0] == 1).all()
    assert (matrix @ matrix.T == order * np.eye(order)).all()


def test_a_matrix_is_shared_and_cannot_be_spoiled() -> None:
    assert hadamard(12) is hadamard(12)
    with pytest.raises(ValueError, match="read-only"):
        hadamard(12)[0, 0] = -1


@for_each("order, below, above", [(92, 88, 96), (6, 4, 8), (3, 2, 4), (116, 112, 120)])
def test_an_order_that_is_missing_is_refused_with_its_neighbours(order: int, below: int, above: int) -> None:
    with pytest.raises(
        BadInput, match=rf"no Hadamard matrix of order {order} .* nearest orders are {below} and {above}"
    ):
        hadamard(order)
    assert largest_order(order) == below


@for_each("order", [0, -4, 2.5, "4"])
def test_what_is_no_order_is_refused(order: int) -> None:
    with pytest.raises(BadInput, match="order must be a whole number"):
        hadamard(order)


@for_each("p, e", [(3, 1), (13, 1), (3, 2), (5, 2), (3, 3), (7, 2), (3, 4), (11, 2), (5, 3)])
def test_a_field_has_as_many_squares_as_others_and_differences_of_squares_are_spread(p: int, e: int) -> None:
    """Q Q^T = q I - J and Q J = 0: the property of the character that Paley's constructions rest on."""
    q = p**e
    jacobsthal = module._jacobsthal(q).astype(int)
    assert sorted(module._powers(p, e)) == list(range(1, q))
    assert (jacobsthal.sum(axis=1) == 0).all()
    assert (jacobsthal @ jacobsthal.T == q * np.eye(q) - 1).all()
    assert ((jacobsthal if q % 4 == 1 else -jacobsthal) == jacobsthal.T).all()


@for_each(
    "q, power", [(1, None), (2, (2, 1)), (6, None), (9, (3, 2)), (27, (3, 3)), (45, None), (49, (7, 2)), (91, None)]
)
def test_prime_powers(q: int, power: tuple[int, int] | None) -> None:
    assert module._prime_power(q) == power
