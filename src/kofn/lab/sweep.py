"""The sweep: many runs of many competitors, on any backend, archived when they are done and never repeated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from kofn.backends import Backend, Progress, check_backend, compute_unordered
from kofn.lab.archive import RunArchive
from kofn.lab.competitors import Competitor, Entry, Trial


def sweep(
    entries: Sequence[Entry],
    runs: int,
    *,
    backend: Backend = "local",
    workers: int | None = None,
    archive: RunArchive | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[Trial, ...]]:
    """Yield the runs of each entry, in the order of the entries, as soon as all earlier entries are complete.

    Runs that are in the archive are not repeated. The runs of all entries are distributed together, so that no worker
    waits for the last run of an entry. `progress` receives the number of finished runs and the total; archived runs
    count as finished from the start.
    """
    check_backend(backend, workers)
    return _sweep(entries, runs, backend, workers, archive, progress)


def _sweep(
    entries: Sequence[Entry],
    runs: int,
    backend: Backend,
    workers: int | None,
    archive: RunArchive | None,
    progress: Progress | None,
) -> Iterator[tuple[Trial, ...]]:
    found = [_archived(archive, entry, runs) for entry in entries]
    missing = [(index, run) for index, trials in enumerate(found) for run in range(runs) if run not in trials]
    done, of, first = len(entries) * runs - len(missing), len(entries) * runs, 0
    if progress and done:
        progress(done, of)
    tasks = [(entries[index].competitor, run) for index, run in missing]
    with closing(compute_unordered(play, tasks, backend=backend, workers=workers)) as results:
        for number, trial in results:
            index, run = missing[number]
            found[index][run] = trial
            if archive:
                archive.add(entries[index].key, run, trial)
            done += 1
            if progress:
                progress(done, of)
            while first < len(found) and len(found[first]) == runs:
                yield _take(found[first], runs)
                first += 1
    for trials in found[first:]:
        yield _take(trials, runs)


def _archived(archive: RunArchive | None, entry: Entry, runs: int) -> dict[int, Trial]:
    """Return the archived runs with a number below `runs`; an earlier sweep may have made more."""
    known = archive.read(entry.key) if archive else {}
    return {run: trial for run, trial in known.items() if run < runs}


def _take(trials: dict[int, Trial], runs: int) -> tuple[Trial, ...]:
    """Return the trials in order and release them, so that memory is needed for one entry at a time."""
    taken = tuple(trials[run] for run in range(runs))
    trials.clear()
    return taken


def play(competitor: Competitor, run: int) -> Trial:
    """Play one run; workers call this."""
    return competitor.play(run)
