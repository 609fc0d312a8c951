"""A progress bar at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar with the remaining time on stderr, only at a terminal."""
    if not sys.stderr.isatty():  # a Console takes a file for a terminal, too, with FORCE_COLOR
        yield lambda done, of: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn(title), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(
        *columns,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bar:
        waiting = bar.add_task(title)
        tasks: list[Any] = []

        def progress(done: int, of: int) -> None:
            if not tasks:  # a new task, because runs that were archived before must not count for the speed
                bar.remove_task(waiting)
                tasks.append(bar.add_task(title, total=of, completed=done))
            bar.update(tasks[0], completed=done, total=of)

        yield progress
