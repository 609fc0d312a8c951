"""The command that forecasts: how many days a campaign takes until it is ready."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kofn.cli.options import AS_JSON, BACKEND, PICTURE, SEED, WORKERS, Count
from kofn.cli.output import echo_json, pairs, picture, progress_bar, show, write_picture


class ShareType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """A number above 0, or a percentage such as 10%: the number and whether it was a percentage."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, bool]:
        """Return the number, or fail with an error that names the option."""
        if isinstance(value, tuple):
            return value
        text = str(value).strip()
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = 0.0
        if not 0 < number < float("inf"):
            self.fail(f"{value!r} is not a number above 0, such as 0.1 or 10%", param, ctx)
        return (number / 100, True) if text.endswith("%") else (number, False)


@click.command()
@click.option("--arms", type=Count(), required=True, help="N, the number of arms.")
@click.option("--k", type=Count(), required=True, help="K, the size of a subset.")
@click.option("--base", type=ShareType(), required=True, help="Mean reward of the present subset, such as 0.02 or 2%.")
@click.option("--lift", type=ShareType(), required=True, help="How much better the best subset is, such as 10%.")
@click.option("--per-day", type=Count(), required=True, help="Plays per day.")
@click.option(
    "--loss",
    type=ShareType(),
    help="Ready if the loss per play is below it; a percentage is of --base. Default: 1%.",
)
@click.option("--sd", type=float, help="Rewards are amounts with this standard deviation. Default: clicks, 0 or 1.")
@click.option("--days", type=Count(), default=365, show_default=True, help="Longest time to simulate, in days.")
@click.option("--runs", type=Count(), default=40, show_default=True, help="Number of campaigns to simulate.")
@SEED
@BACKEND
@WORKERS
@PICTURE
@AS_JSON
def forecast(
    arms: int,
    k: int,
    base: tuple[float, bool],
    lift: tuple[float, bool],
    loss: tuple[float, bool] | None,
    out: Path | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Estimate how many days a campaign takes until its best subset can be shipped.

    Simulates campaigns of the default policy on random problems of this size, in which the best subset has the given
    lift over the present one. A campaign is ready if the loss per play of shipping its best subset is below --loss.

    \b
    kofn forecast --arms 40 --k 5 --base 2% --lift 10% --per-day 5000
    kofn forecast --arms 12 --k 3 --base 1.50 --sd 12 --lift 20% --per-day 20000 --loss 5%
    """
    from kofn.lab.forecast import forecast

    if out := picture(out, "forecast", for_people=not as_json):
        from kofn.lab.plots import draw_forecast  # a missing package is reported before the runs
    limit = None if loss is None else loss[0] * base[0] if loss[1] else loss[0]
    with progress_bar("kofn forecast") as progress:
        found = forecast(arms, k, base=base[0], lift=lift[0], loss=limit, **asked, progress=progress)
    if out:
        write_picture(draw_forecast(found), out)
    if as_json:
        echo_json(found.to_dict())
        return
    after = {name: None if value is None else f"{value:,.1f} days" for name, value in found.quantiles().items()}
    rows = {
        "ready if the loss per play is below": f"{found.loss:.3g} ({found.loss / found.base:.1%} of {found.base:g})",
        f"ready within {asked['days']:,} days": f"{found.ready:.0%} of {asked['runs']} campaigns",
        **{f"{name} are ready after": value or f"more than {asked['days']:,} days" for name, value in after.items()},
        "true loss of what is shipped": _loss(found.true_loss, found.true_loss_error),
        "lift of the best subset then": f"{found.lift_shipped:+.1%}",
        "lift of the plays until then": f"{found.lift_on_the_way:+.1%}",
    }
    title = f"N = {arms:,}, K = {k:,}, {base[0]:g} per play, lift {lift[0]:.0%}, {asked['per_day']:,} plays per day"
    show(pairs(title, rows), found.message)


def _loss(mean: float | None, error: float | None) -> str | None:
    if mean is None:
        return None
    return f"{mean:.2g} per play" + ("" if error is None else f" (± {error:.1g})")
