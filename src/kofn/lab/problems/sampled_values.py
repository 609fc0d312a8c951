"""Rewards drawn from a function of a subset: checked calls, and means over numbered draws."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kofn.core import BadInput, FloatArray, IntArray, Subset
from kofn.core.checks import shown
from kofn.lab.problems.arms import CELLS
from kofn.lab.problems.expectation import SampledExpectation

_BLOCKS, _BLOCKS_OF_ROWS = (16, 256), (256, 2**14)
"""Draws that share a random stream: a block is as large as all before it, within these limits (the second pair is for
functions of many rows). Subsets stay synchronised from block to block, even if the function uses more random numbers
for some of them; smaller blocks cost time."""
_SEED = 20210317  # fixed, so that values are the same in every process


class DrawOne:
    """Calls the user's function `f(subset, rng)`, or with `batch` `f(rows, rng)`, and checks what it returns."""

    def __init__(self, f: Callable[..., Any], k: int, *, batch: bool) -> None:
        if not callable(f):
            raise BadInput(f"f must be a function of (subset, rng) that returns a reward, not {shown(f)}")
        if not isinstance(batch, bool):
            raise BadInput(f"batch must be True or False, not {shown(batch)}")
        self.f, self.k, self.batch = f, k, batch
        self.name = str(getattr(f, "__name__", type(f).__name__))
        self.repeatable = True  # the reward depends on the subset and rng only

    def draw(self, subset: Subset, count: int, rng: np.random.Generator) -> FloatArray:
        """Return `count` rewards of one subset."""
        if self.batch:
            return self.draw_rows(np.tile(np.array(subset), (count, 1)), rng)
        try:
            drawn = [self.f(subset, rng) for _ in range(count)]
        except Exception as why:
            raise BadInput(f"{self.name}({subset}, rng) raised {type(why).__name__}: {why}") from why
        return self._checked(subset, drawn)

    def draw_rows(self, rows: IntArray, rng: np.random.Generator) -> FloatArray:
        """Return one reward of each row."""
        if not self.batch:
            return np.array([self.draw(tuple(row), 1, rng)[0] for row in rows.tolist()])
        expected = f"with batch=True, {self.name}(rows, rng) must return one number per row"
        try:
            drawn = np.asarray(self.f(rows, rng))
        except Exception as why:
            raise BadInput(f"{expected}, but it raised {type(why).__name__}: {why}") from why
        if drawn.shape != (len(rows),) or drawn.dtype.kind not in "biuf":
            raise BadInput(f"{expected}; for {len(rows)} rows it returned {drawn.dtype} of shape {drawn.shape}")
        if not (finite := np.isfinite(drawn)).all():
            at = int(np.argmin(finite))
            raise BadInput(f"{expected}, finite; it returned {drawn[at]} for {tuple(rows[at].tolist())}")
        return drawn.astype(np.float64)

    def reward_and_whether_fixed(self, subset: Subset, rng: np.random.Generator) -> tuple[float, bool]:
        """Return a reward, and whether the function used no random numbers for it.

        A function of the subset and rng that did not use rng once will never do so for this subset: until its first
        random number, every call is the same.
        """
        before = _position(rng)
        reward = float(self.draw(subset, 1, rng)[0])
        return reward, self.repeatable and _position(rng) == before

    def parts(self, count: int) -> Iterator[int]:
        """Yield sizes of calls of `draw` that add up to `count` and need bounded memory."""
        size = max(1, CELLS // self.k)
        return (min(size, count - start) for start in range(0, count, size))

    def _checked(self, subset: Subset, drawn: list[Any]) -> FloatArray:
        try:
            rewards = np.array(drawn)
        except ValueError:  # lists of different lengths
            rewards = np.array([None])
        if rewards.ndim == 1 and rewards.dtype.kind in "biuf" and np.isfinite(rewards).all():
            return rewards.astype(np.float64)
        wrong = next(each for each in drawn if not _is_reward(each))
        raise BadInput(f"{self.name}({subset}, rng) must return one finite number; {_described(wrong)}")


def _is_reward(value: Any) -> bool:
    array = np.asarray(value) if not isinstance(value, list | tuple) else np.empty(2)
    return array.ndim == 0 and array.dtype.kind in "biuf" and math.isfinite(array)


def _described(value: Any) -> str:
    if value is None:
        return "it returned None: does it end with `return reward`?"
    if inspect.iscoroutine(value):
        value.close()  # else Python warns that it was never awaited
        return "it is an async function: define it with def, not async def"
    if isinstance(value, np.ndarray | list | tuple):
        size = f"shape {value.shape}" if isinstance(value, np.ndarray) else f"{len(value)} items"
        return f"it returned {type(value).__name__} of {size}: reduce it to one number, as .mean() does"
    return f"it returned {shown(value)}"


def _position(rng: np.random.Generator) -> tuple[Any, int]:
    """Return the state of the generator, and how many generators it has spawned."""
    spawned = getattr(rng.bit_generator.seed_seq, "n_children_spawned", 0)
    return rng.bit_generator.state, spawned


@dataclass
class DrawMoments:
    """The number of draws of a subset, their mean, and the sum of squared differences from it."""

    count: int = 0
    mean: float = 0.0
    m2: float = 0.0
    exact: bool = False

    def add(self, rewards: FloatArray) -> None:
        """Add draws: the mean and the sum of squares of two groups (Chan, Golub and LeVeque, 1979)."""
        n, mean = len(rewards), float(rewards.mean())
        ahead, count = mean - self.mean, self.count + n
        self.m2 += float(((rewards - mean) ** 2).sum()) + ahead * ahead * self.count * n / count
        self.mean += ahead * n / count
        self.count = count

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return 0.0 if self.exact else math.sqrt(self.m2 / max(1, self.count - 1) / self.count)


class SampledValues(SampledExpectation):
    """Means over numbered draws: draw i has the same random numbers for every subset. They are drawn when needed.

    With `common=False`, every subset has its own random numbers: sums over subsets have less noise, differences more.
    """

    def __init__(self, source: DrawOne, stream: int, draws: int, *, common: bool = True) -> None:
        self._source, self._stream, self._draws, self._common = source, stream, draws, common
        self._known: dict[Subset, DrawMoments] = {}
        self.made = 0

    def value(self, subsets: IntArray) -> FloatArray:
        """Return the mean reward of each row."""
        return np.array([each.mean for each in self._rows(subsets)])

    def errors(self, subsets: IntArray) -> FloatArray:
        """Return the standard error of each row's value: 0 if the function uses no random numbers for it."""
        return np.array([each.error for each in self._rows(subsets)])

    def _rows(self, subsets: IntArray) -> list[DrawMoments]:
        return [self.upto(tuple(sorted(row)), self._draws) for row in subsets.tolist()]

    def upto(self, subset: Subset, draws: int) -> DrawMoments:
        """Return what is known of a subset after at least this number of draws."""
        known = self._known.get(subset)
        if known is None:
            known = self._known[subset] = self._first(subset)
        while known.count < draws and not known.exact:
            least, most = _BLOCKS_OF_ROWS if self._source.batch else _BLOCKS
            block = min(max(least, known.count), most)
            rewards = self._source.draw(subset, block, self._rng(subset, known.count))
            known.add(rewards)
            self.made += block
        return known

    @property
    def subsets(self) -> int:
        """The number of subsets that were drawn."""
        return len(self._known)

    def _first(self, subset: Subset) -> DrawMoments:
        """Return the one reward of a subset without random numbers, else nothing: the draw was only a test."""
        reward, fixed = self._source.reward_and_whether_fixed(subset, self._rng(subset, 0))
        self.made += 1
        return DrawMoments(1, reward, exact=True) if fixed else DrawMoments()

    def _rng(self, subset: Subset, draw: int) -> np.random.Generator:
        own = () if self._common else subset
        return np.random.default_rng([_SEED, self._stream, draw, *own])
