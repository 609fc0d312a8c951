"""Ctrl-C at every moment of a call: the campaign, its process and its other threads go on."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from sqlalchemy.pool import QueuePool

import kofn
from kofn import Campaign
from kofn.campaigns import Store
from kofn.campaigns.store import database, group_commit
from kofn.campaigns.store.group_commit import GroupCommit, Job, Outcome
from kofn.core import threads
from tests.campaigns.tools import checked, create, rewards_for
from tests.waiting import wait_until

# Python ignores an interrupt in a finalizer, such as that of a generator that was not read to its end, and says so.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

OURS = str(Path(kofn.__file__).parent)

PATIENCE = 30.0
"""Seconds after which a thread that should go on is taken for stuck."""


class Interrupt:
    """Raises KeyboardInterrupt at one of the moments at which Python looks for signals in kofn's own code.

    That is when a function begins, and when a function written in C has returned; loops also look at their ends. What
    an interrupt does in the middle of SQLAlchemy or the standard library is their promise. One in `ONE_THREAD` may
    leave BLAS with one thread, which is slower for others at most, and would fail tests of that.
    """

    def __init__(self, moment: int) -> None:
        self.left = moment

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event in ("call", "c_return") and file.startswith(OURS) and file != threads.__file__:
            self.left -= 1
            if self.left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt


def all_moments(call: Callable[[], Any], most: int = 500) -> Iterator[BaseException | None]:
    """Interrupt a call at each of its moments, or at `most` of them; yield each interrupt.

    Keep them, as an interactive session keeps the last one: their tracebacks keep what the call used. None stands for
    one that did not come, because another thread did most of the work, or that Python ignored, in a finalizer.
    """
    moments = moments_of(call)
    for moment in range(0, moments, -(-moments // most)):
        found = None
        try:
            sys.setprofile(Interrupt(moment))
            call()
        except KeyboardInterrupt as why:
            found = why
        finally:
            sys.setprofile(None)
        yield found


def moments_of(call: Callable[[], Any]) -> int:
    """Return at how many moments a call can be interrupted."""
    never = Interrupt(sys.maxsize)
    sys.setprofile(never)
    call()
    sys.setprofile(None)
    return sys.maxsize - never.left


@pytest.fixture
def store(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(database, "LOCK_TIMEOUT", 2.0)
    monkeypatch.setattr(group_commit, "MAX_LINGER", 0.0)
    found = Store(store_url)
    yield found
    found.close()


def goes_on(campaign: Campaign, other: ThreadPoolExecutor) -> None:
    """Check that this thread and another one can decide and reward."""
    decision = campaign.decide()
    assert other.submit(campaign.rewards, rewards_for([decision])).result(PATIENCE).accepted == 1
    # A thread took over; after it, callers execute their own operations again.
    wait_until(lambda: campaign.store.groups._queue is None, "no queue is left", every=0.0001)


def test_a_campaign_survives_an_interrupt_at_any_moment(store: Store) -> None:
    campaign = create(store, window="1h")
    campaign.rewards(rewards_for(campaign.decide(8)))
    waiting, numbers = iter(campaign.decide(3000)), itertools.count()
    calls: dict[str, Callable[[], Any]] = {
        "decide": campaign.decide,
        "reward": lambda: campaign.rewards(rewards_for([next(waiting)])),
        "add": lambda: campaign.add(next(waiting), 3.0, event="order"),
        "learn": lambda: (campaign.learn(), campaign.store.serving(campaign._id, again=True)),
        "change": lambda: campaign.configure(unit="EUR"),
        "read": campaign.summary,
        "create": lambda: create(store, name=f"other {next(numbers)}"),
        "delete": lambda: create(store, name=f"other {next(numbers)}").delete(),
    }
    remote = isinstance(store.pool, QueuePool) and store.url.drivername != "sqlite"
    most = 36 if remote else 500  # on PostgreSQL, each call takes some times as long
    kept = []
    with ThreadPoolExecutor(1) as other:
        for name, call in calls.items():
            for why in all_moments(call, most // 12 if name in ("create", "delete") else most):
                kept.append(why)
                try:
                    goes_on(campaign, other)
                except Exception as error:
                    raise AssertionError(f"after interrupt number {len(kept)}, in {name}") from error
    assert sum(why is not None for why in kept) > 0.6 * most
    if remote:
        assert isinstance(store.pool, QueuePool)
        assert store.pool.checkedout() == 0  # each connection that is lost to the pool is one less for good
    checked(campaign)


@pytest.mark.parametrize("fails", [False, True])
def test_others_that_wait_survive_an_interrupt_of_the_one_that_executes(fails: bool) -> None:
    """A caller executes its own job while others queue up behind it: none of them waits for ever."""
    others: list[Future[Any]] = []
    came: Iterator[int] = iter(())

    def execute(jobs: Any) -> list[Outcome]:
        first = False
        for _ in came:  # others come while the first group is executed
            first, done = True, Future[Any]()
            groups.submit(Job(done=done))
            others.append(done)
        if first and fails:
            raise kofn.StoreError("the store does not respond")
        return [(len(jobs), None)] * len(jobs)

    groups = GroupCommit(execute)

    def call() -> None:
        nonlocal came
        came = iter(range(3))
        with contextlib.suppress(kofn.StoreError):
            groups.run(Job())

    kept = []
    for why in all_moments(call):
        kept.append(why)
        came = iter(())
        for future in others:
            assert isinstance(future.exception(PATIENCE), kofn.StoreError | None)
        others.clear()
        assert groups.run(Job()) >= 1
    groups.close()
    assert groups.queued() == 0
