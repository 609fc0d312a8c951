"""A campaign: decisions are handed out and rewarded by any process, and a store keeps everything."""

import random
from tempfile import TemporaryDirectory

import kofn

GOODS = ["kettle", "mug", "tray", "pan", "pot", "lid", "cup", "jug"]
PRICES = dict(zip(GOODS, [1, 2, 3, 4, 5, 6, 7, 8], strict=True))  # mean spending, unknown to the campaign


def spent(shown: tuple[str, ...] | list[str], rng: random.Random) -> float:
    """Return the amount that one visitor spends on a page with these goods."""
    return sum(PRICES[each] for each in shown) * rng.random()


def main() -> None:
    """Create a campaign, open it a second time as another process would, decide and reward, and report the result."""
    rng = random.Random(1)
    with TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/shop.db"
        kofn.Campaign.create("front-page", arms=GOODS, k=3, reward_range=(0, 40), store=store, seed=1)

        campaign = kofn.Campaign.open("front-page", store=store)  # in any process that reaches the store
        for _ in range(20):
            visitors = campaign.decide(50)  # one decision for each of the next 50 visitors
            campaign.rewards([(each.id, spent(each.arms, rng)) for each in visitors])  # minutes or days later

        insight = campaign.insight()
        print(f"plays:               {campaign.summary().plays:,}")
        print(f"best goods:          {', '.join(insight.best)}")
        print(f"probably the best:   {insight.probability_best:.0%}")
        campaign.store.close()


if __name__ == "__main__":
    main()
