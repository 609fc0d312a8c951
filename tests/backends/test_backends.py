"""Backends: the same results everywhere, lost workers made good, and clear words for what cannot be reached."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

import kofn
from kofn import BadBackend, BadInput, MissingExtra
from kofn.backends import cluster_worker, compute, compute_unordered, dask_cluster, local
from kofn.backends.dask_cluster import TaskBatches, compute_on_cluster
from kofn.lab.settings import Setting
from tests.backends.tasks import always_killed, once_killed, slowly, square
from tests.cases import for_each

distributed = pytest.importorskip("distributed")
SETTING = Setting("max", n_arms=6, k=2)


# The same everywhere.


def test_results_come_in_the_order_of_their_tasks_or_as_they_come(cluster: Any) -> None:
    tasks = [(x,) for x in range(4)]
    for where in ({"workers": 2}, {"backend": cluster}, {"workers": 1}):
        heard: list[tuple[int, int]] = []
        assert compute(slowly, tasks, progress=lambda *at: heard.append(at), **where) == [0, 1, 2, 3]  # noqa: B023
        assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]
    for where in ({"workers": 2}, {"backend": cluster}):
        assert [number for number, _ in compute_unordered(slowly, [(0,), (3,)], **where)] == [1, 0]


def test_runs_are_the_same_on_a_cluster(cluster: Any) -> None:
    """Lambdas, fresh problems, realised regret: all that simulate_many takes."""
    runs = [
        kofn.simulate_many(
            lambda seed: kofn.lab.rivals.SharedCredit(6, 2, seed=seed),
            SETTING.problem,
            500,
            7,
            seed=3,
            realised=True,
            **where,
        )
        for where in ({"workers": 1}, {"workers": 2}, {"backend": cluster})
    ]
    told = [[(run.to_dict(), run.curve.regret.tolist()) for run in each] for each in runs]
    assert told[0] == told[1] == told[2]
    assert len({run.regret for run in runs[0]}) == 7


def test_an_error_in_a_run_comes_back_as_it_is(cluster: Any) -> None:
    for where in ({"workers": 1}, {"workers": 2}, {"backend": cluster}):
        with pytest.raises(BadInput, match="n_arms=6, but the problem has n_arms=7"):
            kofn.simulate_many(lambda _: kofn.Uniform(6, 2), Setting("max", 7, 2).problem, 100, 2, **where)
    with pytest.raises(ZeroDivisionError):
        compute(lambda x: 1 / x, [(1,), (0,)], backend=cluster)
    assert compute(square, [(3,)], backend=cluster) == [9]  # and the cluster is as it was


def test_without_tasks_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "open_cluster", lambda *_: pytest.fail("a cluster was started"))
    assert compute(square, [], backend="dask") == []


# Lost workers.


def test_what_a_lost_worker_had_is_done_again(tmp_path: Path, cluster: Any) -> None:
    for name, where in {"local": {"workers": 2}, "dask": {"backend": cluster}}.items():
        mark = tmp_path / name
        assert compute(once_killed, [(x, mark) for x in range(40)], **where) == list(range(40))
        assert mark.exists()


def test_workers_that_are_lost_again_and_again_are_an_error(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MOST_LOSSES", 1)
    with pytest.raises(BadBackend, match=r"worker processes were killed 2 times, .*: use fewer workers"):
        compute(always_killed, [(1,), (2,)], workers=2)
    monkeypatch.setattr(cluster.cluster.scheduler, "allowed_failures", 1)
    with pytest.raises(BadBackend, match="2 workers were lost with the same runs, the last one tcp://"):
        compute(always_killed, [(1,)], backend=cluster)


def test_what_is_done_is_not_done_again_after_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[list[int]] = []

    def attempt(function: Callable[..., Any], left: dict[int, Any], workers: int) -> Iterator[tuple[int, Any]]:
        attempts.append(list(left))
        first, *others = left
        yield first, "done"
        if others:
            raise BrokenProcessPool

    monkeypatch.setattr(local, "_compute_once", attempt)
    assert list(local.compute_locally(square, [(1,), (2,), (3,)])) == [(0, "done"), (1, "done"), (2, "done")]
    assert attempts == [[0, 1, 2], [1, 2], [2]]


# Batches.


def test_batches_hold_all_tasks_once_and_fit_their_duration() -> None:
    batches, sizes, seen = TaskBatches(square, [(x,) for x in range(47)]), [], []
    for seconds in (0.001, 0.001, 0.001, 1.0, 0.25, 0.0, 0.0, 0.0, 0.0):
        if batch := next(iter(batches), None):
            _, results = cluster_worker.compute_batch(cluster_worker.environment(), batch[1])
            seen += results
            sizes.append(len(results))
            batches.record_duration(seconds, len(results))
    assert seen == [(x, x * x) for x in range(47)]
    assert sizes == [1, 2, 4, 8, 2, 2, 4, 8, 16]


# What cannot be.


@for_each(
    "backend, workers, message",
    [
        *((each, None, f"backend must be 'local', 'dask', .*, not {each!r}") for each in ("local:2", "dask:", "", 7)),
        ("dask:tcp://10.0.0.1:8786", 2, "a running cluster has its own workers: leave out workers=2"),
        ("dask", 0, "workers must be a whole number of at least 1, not 0"),
    ],
)
def test_what_is_no_backend_is_refused_before_anything_runs(backend: Any, workers: int | None, message: str) -> None:
    with pytest.raises(BadInput, match=f"^{message}"):
        compute_unordered(square, [(1,)], backend=backend, workers=workers)
    with pytest.raises(BadInput, match=f"^{message}"):
        kofn.compare(["uniform"], SETTING, 10, runs=1, backend=backend, workers=workers)


def test_a_client_has_its_own_workers(cluster: Any) -> None:
    with pytest.raises(BadInput, match="a running cluster has its own workers: leave out workers=3"):
        compute_unordered(square, [(1,)], backend=cluster, workers=3)


def test_without_dask_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match=r"dask.distributed is not installed: pip install 'kofn\[dask\]'"):
        compute(square, [(1,)], backend="dask")


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nowhere", "tcp://:x"])
def test_a_cluster_that_is_not_there_is_named_with_the_way_out(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 1)
    with pytest.raises(BadBackend, match=rf"^there is no Dask scheduler at {address} \(.*\): start one with `dask sch"):
        compute(square, [(1,)], backend=f"dask:{address}")


def test_a_client_that_cannot_connect_is_not_even_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left over, it would hang the next one whenever memory is cleared at the wrong moment."""
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 1)
    monkeypatch.setattr(distributed, "Client", lambda *_, **__: pytest.fail("a client was made"))
    with pytest.raises(BadBackend, match="there is no Dask scheduler at"):
        compute(square, [(1,)], backend="dask:tcp://127.0.0.1:9")


def test_a_cluster_by_its_address_also_where_a_loop_is_running(cluster: Any) -> None:
    async def notebook() -> list[int]:
        return compute(square, [(1,), (2,)], backend=f"dask:{cluster.scheduler.address}")

    assert asyncio.run(notebook()) == [1, 4]


def test_a_cluster_without_workers_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 1)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as empty,
        distributed.Client(empty, set_as_default=False) as client,
        pytest.raises(
            BadBackend, match=r"the cluster at inproc://.* has no workers: start some with `dask worker inpr"
        ),
    ):
        compute(square, [(1,)], backend=client)


def test_workers_of_another_version_are_refused(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kofn", "kofn's code", "numpy", "scipy"):
        other = cluster_worker.environment() | {name: "0.0.9"}
        monkeypatch.setattr(dask_cluster, "environment", lambda other=other: other)
        with pytest.raises(BadBackend, match=rf"may give other digits: it has {name} \S+ instead of 0\.0\.9\. Install"):
            compute(square, [(1,)], backend=cluster)


def test_another_python_is_refused_before_anything_is_sent(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "environment", lambda: cluster_worker.environment() | {"python": "3.99"})
    with pytest.raises(BadBackend, match=r"scheduler of the cluster at tcp://.* runs Python 3\.\d+, but this is 3\.99"):
        list(compute_on_cluster(square, [(1,)], cluster))


def test_a_module_that_only_this_machine_has_is_named(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onlyhere.py").write_text("def square(x): return x * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    import onlyhere  # type: ignore[import-not-found]

    with pytest.raises(BadBackend, match="has no module 'onlyhere': install it there, or define policies and problems"):
        compute(onlyhere.square, [(1,)], backend=cluster)


def test_workers_without_kofn_are_named_with_the_way_out(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def without() -> Callable[..., Any]:
        def work(*_: Any) -> Any:
            raise ModuleNotFoundError("No module named 'kofn'", name="kofn")

        return work

    monkeypatch.setattr(dask_cluster, "_batch_function", without)
    with pytest.raises(BadBackend, match=rf"a worker has no kofn: install kofn {kofn.__version__} on all workers"):
        compute(square, [(1,)], backend=cluster)


def test_kofn_starts_without_dask() -> None:
    import subprocess

    program = "import sys, kofn, kofn.cli; kofn.compare; sys.exit('distributed' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
