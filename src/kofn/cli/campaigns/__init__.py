"""The `kofn campaign` commands: real decisions from scripts and cron jobs. Parse, call, print."""

from __future__ import annotations

import click

from kofn.cli.campaigns.decide import add, decide, record, reward, reward_total
from kofn.cli.campaigns.decisions import decisions
from kofn.cli.campaigns.reports import estimates, events
from kofn.cli.campaigns.settings import configure, create
from kofn.cli.campaigns.show import list_, segments, show_
from kofn.cli.campaigns.state import add_arm, archive, delete, learn, pause, resume, retire_arm, ship, stop
from kofn.cli.campaigns.transfer import export, import_, verify
from kofn.cli.options import help_if_alone


@click.group(invoke_without_command=True, subcommand_metavar="COMMAND [ARGS]...")
@click.pass_context
def campaign(context: click.Context) -> None:
    """Make real decisions and learn from their rewards, with a policy whose state is in a store.

    \b
    kofn campaign create front --arm mug --arm tray --arm pan --k 2
    kofn campaign decide front
    kofn campaign reward front 1a-0-5f3c0d2e9b1c4a7d6e8f0a1b 0.5
    kofn campaign show front
    """
    help_if_alone(context)


for command in (create, configure, delete, list_, show_, segments, decisions, estimates, events):
    campaign.add_command(command)
for command in (decide, reward, add, record, reward_total, learn, export, import_, verify):
    campaign.add_command(command)
for command in (add_arm, retire_arm, pause, resume, ship, stop, archive):
    campaign.add_command(command)
