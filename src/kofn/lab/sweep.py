"""The sweep: many runs of many competitors, on any backend, archived when they are done and never repeated."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
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
    found = [archived(archive, entry, runs) for entry in entries]
    first = 0
    played = play_missing(entries, [runs] * len(entries), found, backend, workers, archive, progress)
    with closing(played):
        for _ in played:
            while first < len(found) and len(found[first]) == runs:
                yield _take(found[first], runs)
                first += 1
    for trials in found[first:]:
        yield _take(trials, runs)


def archived(archive: RunArchive | None, entry: Entry, runs: int) -> dict[int, Trial]:
    """Return the archived runs with a number below `runs`; an earlier sweep may have made more."""
    known = archive.read(entry.key) if archive else {}
    return {run: trial for run, trial in known.items() if run < runs}


def play_missing(
    entries: Sequence[Entry],
    limits: Sequence[int],
    found: Sequence[dict[int, Trial]],
    backend: Backend,
    workers: int | None,
    archive: RunArchive | None,
    progress: Progress | None,
    play: Callable[[Competitor, int], Trial] | None = None,
) -> Generator[None, None, None]:
    """Play the runs of each entry below its limit that are not in `found`, and add them there and to the archive.

    Yields after each run. `play` is what workers call, by default `Competitor.play`.
    """
    planned = [(index, run) for index, limit in enumerate(limits) for run in range(limit)]
    missing = [(index, run) for index, run in planned if run not in found[index]]
    done = len(planned) - len(missing)
    if progress and done:
        progress(done, len(planned))
    tasks = [(entries[index].competitor, run) for index, run in missing]
    with closing(compute_unordered(play or Competitor.play, tasks, backend=backend, workers=workers)) as results:
        for number, trial in results:
            index, run = missing[number]
            found[index][run] = trial
            if archive:
                archive.add(entries[index].key, run, trial)
            done += 1
            if progress:
                progress(done, len(planned))
            yield


def _take(trials: dict[int, Trial], runs: int) -> tuple[Trial, ...]:
    """Return the trials in order and release them, so that memory is needed for one entry at a time."""
    taken = tuple(trials[run] for run in range(runs))
    trials.clear()
    return taken
