"""The commands that change the state or the arms of a campaign: campaign pause, resume, learn, ship and others."""

from __future__ import annotations

import click

from kofn.cli.campaigns.options import NAME, open_campaign
from kofn.cli.options import STORE


@click.command("add-arm")
@NAME
@click.argument("arm")
@click.option("--group", "groups", multiple=True, metavar="RULE", help="Name of a rule that it joins; repeatable.")
@STORE
def add_arm(name: str, arm: str, groups: tuple[str, ...], store: str | None) -> None:
    """Add ARM to the campaign NAME. What was learned about the others is kept."""
    open_campaign(name, store).add_arm(arm, groups)
    click.echo(f"{name}: added {arm}")


@click.command("retire-arm")
@NAME
@click.argument("arm")
@STORE
def retire_arm(name: str, arm: str, store: str | None) -> None:
    """Retire ARM: it is not shown until it is added again. What was learned about the others is kept."""
    open_campaign(name, store).retire_arm(arm)
    click.echo(f"{name}: retired {arm}")


@click.command()
@NAME
@STORE
def pause(name: str, store: str | None) -> None:
    """Refuse decisions until the campaign is resumed. Rewards are still accepted."""
    open_campaign(name, store).pause()
    click.echo(f"{name}: paused")


@click.command()
@NAME
@STORE
def resume(name: str, store: str | None) -> None:
    """Resume a paused or shipped campaign: it decides and learns again."""
    open_campaign(name, store).resume()
    click.echo(f"{name}: running")


@click.command()
@NAME
@STORE
def learn(name: str, store: str | None) -> None:
    """Learn from what has settled, as after a window. `kofn serve` does it by itself.

    \b
    kofn campaign learn front
    """
    learned = open_campaign(name, store).learn()
    click.echo(f"{name}: {'learned' if learned else 'nothing to learn yet'}")


@click.command()
@NAME
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="Arm to ship; repeatable.  [default: the best]")
@click.option("--no-store", is_flag=True, help="Do not store decisions when they are made, but with their rewards.")
@STORE
def ship(name: str, arms: tuple[str, ...], no_store: bool, store: str | None) -> None:
    """Give everyone the best subset, or these arms, from now on. Rewards are still counted.

    With contextual-thompson, each segment gets its own best subset.

    \b
    kofn campaign ship front
    """
    from kofn.policies.registry import policy_named

    shipped = open_campaign(name, store)
    shipped.ship(list(arms) or None, store=not no_store)
    known = shipped.insight()
    by_segment = not arms and policy_named(known.summary.policy).takes_context
    own = "; each segment gets its own best subset" if by_segment else ""
    click.echo(f"{name}: shipped {', '.join(known.shipped or [])}{own}")


@click.command()
@NAME
@STORE
def stop(name: str, store: str | None) -> None:
    """Refuse decisions for good, and print the best subset. Late rewards are still accepted."""
    stopped = open_campaign(name, store)
    stopped.stop()
    click.echo(f"{name}: stopped; the best are {', '.join(stopped.best())}")


@click.command()
@NAME
@STORE
def archive(name: str, store: str | None) -> None:
    """Refuse decisions and rewards for good, and leave the list. All data is kept."""
    open_campaign(name, store).archive()
    click.echo(f"{name}: archived")


@click.command()
@NAME
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@STORE
def delete(name: str, yes: bool, store: str | None) -> None:
    """Delete the campaign NAME and all its data."""
    doomed = open_campaign(name, store)
    if not yes:
        click.confirm(f"delete {name} with its {doomed.summary().plays:,} plays?", abort=True, err=True)
    doomed.delete()
    click.echo(f"{name}: deleted")
