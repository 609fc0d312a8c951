"""What other processes do in the tests of campaigns."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from typing import Any

import kofn
from kofn import Campaign
from kofn.campaigns import Decision
from tests.campaign_tools import create, rewards_for

CONTEXT = multiprocessing.get_context("forkserver")  # imports once, then starts a process in no time
CONTEXT.set_forkserver_preload(["tests.campaign_workers"])


def start(work: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A process that does this work."""
    process = CONTEXT.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process


def run(work: Callable[..., None], each: Sequence[tuple[Any, ...]], seconds: float = 120) -> None:
    """Do this work in a process for each of the arguments, all at once; one that fails fails the test."""
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
    """The campaign that many make at once, and one does."""
    try:
        return create(store)
    except kofn.CampaignExists:
        return Campaign.open("front", store=store)


def open_and_play(store: str, seed: int, calls: int) -> None:
    """Make or open the campaign, then decide and tell at random, some of it late."""
    campaign = make_or_open(store)
    rng = random.Random(seed)
    out: list[Decision] = []
    for _ in range(calls):
        out += campaign.decide(rng.randint(1, 12))
        rng.shuffle(out)
        now = [out.pop() for _ in range(rng.randint(0, len(out)))]
        campaign.rewards(rewards_for(now))
    campaign.rewards(rewards_for(out))


def tell_all(store: str, rewards: dict[str, float]) -> None:
    """Tell the same rewards as others do, in small batches and an order of its own."""
    campaign = Campaign.open("front", store=store)
    pairs = list(rewards.items())
    random.Random(os.getpid()).shuffle(pairs)
    for begin in range(0, len(pairs), 10):
        campaign.rewards(pairs[begin : begin + 10])


def play_until_killed(store: str, log: str, seed: int) -> None:
    """Decide and tell without end; what the campaign has acknowledged is in the log before anything else is done."""
    campaign = Campaign.open("front", store=store)
    rng = random.Random(seed)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    out: list[Decision] = [*campaign.open_decisions(200)]  # what the process before left behind, acknowledged or not
    while True:
        out += campaign.decide(rng.randint(1, 30))
        rng.shuffle(out)
        now = rewards_for(out.pop() for _ in range(rng.randint(1, len(out))))
        campaign.rewards(now)
        os.write(file, (json.dumps(now) + "\n").encode())
        if rng.random() < 0.5:
            campaign.rewards(now)  # a retry of what was taken
