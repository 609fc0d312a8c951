"""The work of other processes in the tests of campaigns."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import kofn
from kofn import Campaign
from kofn.campaigns import Decision, Store
from kofn.campaigns.fold import fold
from kofn.campaigns.learning import Job, Learned, learn
from tests.campaigns.tools import create, play, rewards_for
from tests.waiting import wait_until

CONTEXT = multiprocessing.get_context("forkserver")  # imports once, then starts processes quickly
CONTEXT.set_forkserver_preload(["tests.campaigns.test_processes", "tests.campaigns.test_version"])


def start(work: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Start a process that does this work."""
    process = CONTEXT.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def run(work: Callable[..., None], each: Sequence[tuple[Any, ...]], seconds: float = 120) -> None:
    """Do this work in one process per tuple of arguments, all at once. If one process fails, the test fails."""
    barrier = CONTEXT.Barrier(len(each))
    processes = [start(_together, barrier, work, *arguments) for arguments in each]
    until = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
    assert [process.exitcode for process in processes] == [0] * len(each)


def _together(barrier: Any, work: Callable[..., None], *arguments: Any) -> None:
    barrier.wait(60)
    work(*arguments)


def make_or_open(store: str) -> Campaign:
    """Create the campaign, or open it if another process was faster."""
    try:
        return create(store)
    except kofn.CampaignExists:
        return Campaign.open("front", store=store)


def open_and_play(store: str, seed: int, calls: int) -> None:
    """Create or open the campaign, then decide and reward at random, some rewards late."""
    campaign = make_or_open(store)
    rng = random.Random(seed)
    in_flight: list[Decision] = []
    for _ in range(calls):
        in_flight += campaign.decide(rng.randint(1, 12))
        rng.shuffle(in_flight)
        now = [in_flight.pop() for _ in range(rng.randint(0, len(in_flight)))]
        campaign.rewards(rewards_for(now))
    campaign.rewards(rewards_for(in_flight))


def tell_all(store: str, rewards: dict[str, float]) -> None:
    """Record the same rewards as other processes, in small batches and a random order."""
    campaign = Campaign.open("front", store=store)
    pairs = list(rewards.items())
    random.Random(os.getpid()).shuffle(pairs)
    for begin in range(0, len(pairs), 10):
        campaign.rewards(pairs[begin : begin + 10])


def play_until_killed(store: str, log: str, seed: int) -> None:
    """Decide and reward without end. What is acknowledged is written to the log before the next call."""
    campaign = Campaign.open("front", store=store)
    rng = random.Random(seed)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    in_flight: list[Decision] = [*campaign.open_decisions(200)]  # left by the previous process
    while True:
        key = f"call {rng.getrandbits(60)}"
        made = campaign.decide(rng.randint(1, 30), key=key)
        in_flight += made
        rng.shuffle(in_flight)
        now = rewards_for(in_flight.pop() for _ in range(rng.randint(1, len(in_flight))))
        taken = campaign.rewards(now)
        if not taken.late and not taken.repeated:
            line = {"rewards": now, "key": key, "ids": [each.id for each in made]}
            os.write(file, (json.dumps(line) + "\n").encode())
        if rng.random() < 0.5:
            campaign.rewards(now)  # a retry
        if rng.random() < 0.2:
            assert campaign.decide(len(made), key=key) == made


def decide_with_keys(store: str, keys: Sequence[str], file: str) -> None:
    """Decide twice for each key, many calls at once; write the ids of each key to a file."""
    campaign = Campaign.open("front", store=store)
    calls: list[tuple[str, Future[Any]]] = [(key, Future()) for key in keys]
    for key, done in calls:
        campaign.submit_decide(done, 2, key=key)
    found = {key: [each.id for each in done.result(60)] for key, done in calls}
    Path(file).write_text(json.dumps(found))


def decide_until_told(store: str, stop: Any) -> None:
    """Decide and reward at full speed until an event is set."""
    campaign = Campaign.open("front", store=store)
    while not stop.is_set():
        campaign.rewards(rewards_for(campaign.decide(3)))


@contextmanager
def started(work: Callable[..., None], each: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """Let processes do this work until the event that is given is set, or the block ends."""
    stop = CONTEXT.Event()
    processes = [start(work, *arguments, stop) for arguments in each]
    try:
        yield stop
    finally:
        stop.set()
        for process in processes:
            process.join(60)
    assert [process.exitcode for process in processes] == [0] * len(each)


# What a learner's process does instead of learning.


def learn_when_told(file: str, job: Job) -> Learned:
    """Say so in another file, and learn when this file exists."""
    Path(f"{file}.began").touch()
    wait_until(Path(file).exists, "the test lets the policy go on", every=0.01)
    return learn(job)


def fail_to_learn(job: Job) -> Learned:
    """Fail as a policy with a defect does."""
    raise ZeroDivisionError("division by zero")


def die_of_some(job: Job) -> Learned:
    """Die as a process that needs too much memory does, if the policy is cmab-sm."""
    if job.record["policy"] == "linear-thompson":
        os.kill(os.getpid(), signal.SIGKILL)
    return learn(job)


def append_and_die(store: str, folds: bool) -> None:
    """Decide and reward without learning, and die: before the rows are counted, or before they are learned."""
    where = Store(store)
    where.learns_inline = False
    campaign = Campaign.open("front", where)
    play(campaign, 200, batch=20)
    if folds:
        fold(where, campaign._id)
    os.kill(os.getpid(), signal.SIGKILL)
