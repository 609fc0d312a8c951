"""The sweep: many runs of many contenders, anywhere, kept as they come and never done twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from kofn.backends import Backend, Progress, check_backend, compute_unordered
from kofn.experiments.archive import Store
from kofn.experiments.contenders import Contender, Entry, Trial


def sweep(
    entries: Sequence[Entry],
    runs: int,
    *,
    backend: Backend = "local",
    workers: int | None = None,
    store: Store | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[Trial, ...]]:
    """The runs of each entry, in the order of the entries; each entry's as soon as all before it are done.

    What is in the store is not done again. The runs of all entries are spread together, so that no worker waits for
    the last run of an entry. `progress` is told of the runs done, of all; at first of those in the store.
    """
    check_backend(backend, workers)
    return _sweep(entries, runs, backend, workers, store, progress)


def _sweep(
    entries: Sequence[Entry],
    runs: int,
    backend: Backend,
    workers: int | None,
    store: Store | None,
    progress: Progress | None,
) -> Iterator[tuple[Trial, ...]]:
    found = [_kept(store, entry, runs) for entry in entries]
    missing = [(index, run) for index, trials in enumerate(found) for run in range(runs) if run not in trials]
    done, of, first = len(entries) * runs - len(missing), len(entries) * runs, 0
    if progress and done:
        progress(done, of)
    tasks = [(entries[index].contender, run) for index, run in missing]
    with closing(compute_unordered(play, tasks, backend=backend, workers=workers)) as results:
        for number, trial in results:
            index, run = missing[number]
            found[index][run] = trial
            if store:
                store.add(entries[index].key, run, trial)
            done += 1
            if progress:
                progress(done, of)
            while first < len(found) and len(found[first]) == runs:
                yield _taken(found[first], runs)
                first += 1
    for trials in found[first:]:
        yield _taken(trials, runs)


def _kept(store: Store | None, entry: Entry, runs: int) -> dict[int, Trial]:
    there = store.read(entry.key) if store else {}
    return {run: trial for run, trial in there.items() if run < runs}  # it may have been asked for more before


def _taken(trials: dict[int, Trial], runs: int) -> tuple[Trial, ...]:
    """The trials in order. They are let go of: who takes one entry at a time needs no memory for all."""
    taken = tuple(trials[run] for run in range(runs))
    trials.clear()
    return taken


def play(contender: Contender, run: int) -> Trial:
    """What a worker does."""
    return contender.play(run)
