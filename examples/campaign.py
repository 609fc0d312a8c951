"""A shop that reports orders and returns only: from nothing to a shipped winner, with a control and a guardrail.

Visitors are simulated, and so is the clock: a month takes seconds.
"""

import random
from tempfile import TemporaryDirectory

import kofn
from kofn.campaigns import Decision, store_at
from kofn.campaigns.evidence import Lift

GOODS = ["kettle", "mug", "tray", "pan", "pot", "lid", "cup", "jug"]
SELLS = dict(zip(GOODS, [0.01, 0.01, 0.02, 0.02, 0.03, 0.08, 0.1, 0.12], strict=True))  # unknown to the campaign
PRICE = 30.0
DAY = 86_400.0


class Shop:
    """Simulated visitors: most do nothing, and nothing is reported about them."""

    def __init__(self, campaign: kofn.Campaign) -> None:
        self.campaign, self.random, self.now = campaign, random.Random(1), campaign.store.clock()
        self.events: list[tuple[float, str, int, str]] = []  # when, order or return, its number, the decision
        campaign.store.clock = lambda: self.now

    def day(self, visitors: int) -> None:
        """Show goods to the visitors of a day, then report the orders and returns until its end."""
        for decision in self.campaign.decide(visitors):
            self.show(decision)
        self.now += DAY
        due = sorted(event for event in self.events if event[0] <= self.now)
        self.events = [event for event in self.events if event[0] > self.now]
        worth = {"order": PRICE, "return": -PRICE}
        self.campaign.adds((id, worth[what], f"{what}-{number}") for _, what, number, id in due)
        self.campaign.records((id, "returns", 1.0) for _, what, _, id in due if what == "return")

    def show(self, decision: Decision) -> None:
        """Let a visitor order something within hours, or not; one order in ten is returned within days."""
        if any(self.random.random() < SELLS[each] for each in decision.arms):
            at, number = self.now + self.random.expovariate(4 / DAY), self.random.randrange(10**9)
            self.events.append((at, "order", number, decision.id))
            if self.random.random() < 0.1:
                self.events.append((at + self.random.uniform(1, 5) * DAY, "return", number, decision.id))


def euros(lift: Lift) -> str:
    """Return a lift over the control, with its interval."""
    return f"{lift.difference:+.2f} EUR a visitor ({lift.low:+.2f} to {lift.high:+.2f})"


def main() -> None:
    """Create a campaign, sell for 30 days, print what it was worth, and ship the winner."""
    with TemporaryDirectory() as folder:
        campaign = kofn.Campaign.create(
            "front-page",
            arms=GOODS,
            k=3,
            reward_range=(0, PRICE),
            unit="EUR",
            window="7d",  # a visitor who does nothing for seven days earned 0
            control=["kettle", "mug", "tray"],  # today's page, for a tenth of the visitors
            guardrails=["returns<=+0.05"],  # at most 5 more returns per 100 visitors
            stop_when="loss<0.3",
            seed=1,
            store=store_at(f"sqlite:///{folder}/shop.db"),
        )
        shop = Shop(campaign)
        for _ in range(30):
            shop.day(500)
        known = campaign.insight()
        assert known.stop is not None
        assert known.lift is not None
        assert known.winner is not None
        print(f"best goods:        {', '.join(known.best)}; {known.stop.reason}")
        print(f"earned so far:     {euros(known.lift)}")
        print(f"shipping earns:    {euros(known.winner.lift)}")
        print(f"broken guardrails: {', '.join(each.name for each in known.metrics if each.broken) or 'none'}")
        campaign.ship()
        print(f"everyone sees:     {', '.join(campaign.decide().arms)}")
        campaign.store.close()


if __name__ == "__main__":
    main()
