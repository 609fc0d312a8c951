"""Hadamard matrices: what they are, which orders there are, and the fields behind them."""

import numpy as np
import pytest

from kofn import BadInput
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


def test_an_order_that_is_missing_is_refused_with_its_neighbours() -> None:
    with pytest.raises(BadInput, match=r"no Hadamard matrix of order 92 .* nearest orders are 88 and 96"):
        hadamard(92)
    assert largest_order(92) == 88
