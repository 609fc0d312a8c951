"""`kofn backup` and `kofn restore`: a whole store as one file, and back."""

from __future__ import annotations

from pathlib import Path

import click

from kofn.cli.options import AS_JSON, STORE
from kofn.cli.output import echo_json, progress_bar

FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.command()
@FILE
@click.option("--replace", is_flag=True, help="Replace FILE if it is a backup.")
@STORE
@AS_JSON
def backup(file: Path, replace: bool, store: str | None, as_json: bool) -> None:
    """Write a store with its campaigns, tokens and settings to FILE, while servers use it.

    The backup has everything that was acknowledged before the command started. It can be restored into SQLite or
    PostgreSQL. FILE contains the secrets of the store: keep it as safe as the store itself.

    \b
    kofn backup shop-2026-11-14.backup --store sqlite:///shop.db
    kofn backup shop.backup --replace --store postgresql://shop@db/shop
    """
    from kofn.campaigns import backup as make

    with progress_bar("backup") as progress:
        made = make(file, store, replace=replace, progress=progress)
    if as_json:
        echo_json(made.to_dict())
    else:
        counts = f"{made.campaigns:,} campaigns, {made.tokens:,} tokens, {made.rows:,} rows"
        click.echo(f"wrote {file}: {counts}, {made.size / 1024 / 1024:.1f} MiB")


@click.command()
@FILE
@click.option("--replace", is_flag=True, help="Replace everything that the store has.")
@STORE
@AS_JSON
def restore(file: Path, replace: bool, store: str | None, as_json: bool) -> None:
    """Restore the backup FILE into a new or empty store.

    All of it is restored, or nothing. With --replace, servers that use the store continue with the restored campaigns;
    decisions that were made after the backup are then unknown, and their rewards are refused.

    \b
    kofn restore shop-2026-11-14.backup --store sqlite:///new.db
    kofn restore shop-2026-11-14.backup --replace --store postgresql://shop@db/shop
    """
    from kofn.campaigns import restore as load

    with progress_bar("restore") as progress:
        loaded = load(file, store, replace=replace, progress=progress)
    if as_json:
        echo_json(loaded.to_dict())
    else:
        counts = f"{loaded.campaigns:,} campaigns, {loaded.tokens:,} tokens, {loaded.rows:,} rows"
        click.echo(f"restored {counts} from {loaded.made:%Y-%m-%d %H:%M} UTC")
