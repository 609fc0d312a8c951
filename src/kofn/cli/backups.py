"""`kofn backup` and `kofn restore`: a SQLite store as one file, and back."""

from __future__ import annotations

from pathlib import Path

import click

from kofn.cli.options import STORE

FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.command()
@FILE
@click.option("--replace", is_flag=True, help="Replace FILE if it exists.")
@STORE
def backup(file: Path, replace: bool, store: str | None) -> None:
    """Copy a SQLite store with its campaigns, tokens and settings to FILE, while servers use it.

    The backup has everything that was acknowledged before the command started. FILE contains the secrets of the store:
    keep it as safe as the store itself. For PostgreSQL, use pg_dump.

    \b
    kofn backup shop-2026-11-14.backup --store sqlite:///shop.db
    """
    from kofn.campaigns import backup as make

    made = make(file, store, replace=replace)
    click.echo(f"wrote {made}: {made.stat().st_size / 1024 / 1024:.1f} MiB")


@click.command()
@FILE
@click.option("--replace", is_flag=True, help="Replace everything that the store has.")
@STORE
def restore(file: Path, replace: bool, store: str | None) -> None:
    """Restore the backup FILE into a new or empty SQLite store.

    Stop the service first: a store that is in use is not restored. Decisions that were made after the backup are
    unknown afterwards, and their rewards are refused. For PostgreSQL, use pg_restore.

    \b
    kofn restore shop-2026-11-14.backup --replace --store sqlite:///shop.db
    """
    from kofn.campaigns import restore as load

    load(file, store, replace=replace)
    click.echo(f"restored {file}")
