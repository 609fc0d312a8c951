"""The Python client of `kofn serve`. The service runs in a thread here; usually it is another machine."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import uvicorn

import kofn
from kofn.campaigns import store_at
from kofn.service import ServiceSettings, create_token, make_app

SERVERS = ["ash", "birch", "cedar", "elm", "fir", "oak"]


@contextmanager
def service(store: str) -> Iterator[tuple[str, str]]:
    """Run the service on a free port of this machine, and yield its URL and a token."""
    listener = socket.create_server(("127.0.0.1", 0))
    app = make_app(ServiceSettings(store=store))
    token, _ = create_token(store_at(store), "example")  # in a shell: kofn token create example
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", token
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def main() -> None:
    """Create a campaign over HTTP, decide and reward."""
    with (
        TemporaryDirectory() as folder,
        service(f"sqlite:///{folder}/fleet.db") as (url, token),
        kofn.Client(url, token) as client,
    ):
        campaign = client.create("fleet", arms=SERVERS, k=2, reward_range=(0, 100), direction="minimize", seed=1)
        for _ in range(10):
            decisions = campaign.decide(20)
            rewards = {each.id: 10.0 * sum(map(SERVERS.index, each.arms)) for each in decisions}  # milliseconds
            campaign.rewards(rewards)
        with kofn.Client(url, token, prefetch=20, buffer=20) as fast:  # decides in microseconds, rewards in batches
            campaign = fast.campaign("fleet")
            for _ in range(50):
                decision = campaign.decide()
                campaign.reward(decision.id, 10.0 * sum(map(SERVERS.index, decision.arms)))
        print(f"fastest servers: {', '.join(sorted(client.campaign('fleet').best()))}")


if __name__ == "__main__":
    main()
