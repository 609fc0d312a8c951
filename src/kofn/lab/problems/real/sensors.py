"""Water sensors: K sensors in a network of pipes, and 1 if one of them detects a random contamination in time.

EPANET computes the flows of a day in Net3, an example network of its own (92 junctions). A contamination starts at a
random junction at a random full hour. It travels with the water, by the velocities of the hour in which it enters a
pipe, and is detected where it arrives. Mixing, dilution and decay are left out.
"""

from __future__ import annotations

import heapq
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from kofn.core import FloatArray
from kofn.lab.problems.expectation import top_subset
from kofn.lab.problems.real.coverage import Coverage
from kofn.lab.problems.real.files import data_file, module

HOURS = 24
IN_TIME = 6 * 3600.0
"""Seconds within which a detection counts. More time makes detection easier."""
_STILL = 1e-6
"""Flow below which water stands, in cubic metres per second."""

Links = list[tuple[int, int, float, FloatArray]]  # start, end, volume (0: a pump), flow by hour


def sensors(k: int) -> Coverage:
    """Return the problem of K sensors at the junctions of Net3."""
    junctions, links = _network()
    n_arms = len(junctions)
    by_hour = [_downstream(links, hour) for hour in range(HOURS)]
    hits = np.zeros((n_arms, n_arms * HOURS), bool)
    for source in range(n_arms):
        for hour in range(HOURS):
            reached = _reached(by_hour, source, hour)
            hits[[node for node in reached if node < n_arms], source * HOURS + hour] = True
    flow = np.zeros(n_arms)
    for start, end, _, flows in links:
        for node in (start, end):
            if node < n_arms:
                flow[node] += np.abs(flows).mean()
    return Coverage(junctions, hits, k, {"highest flow": top_subset(flow, k)})


def _network() -> tuple[list[str], Links]:
    """Return the names of the junctions and all links; junctions are numbered first, tanks and reservoirs last."""
    wntr = module("wntr", "wntr")
    model = wntr.network.WaterNetworkModel(str(data_file("wntr", "library", "networks", "Net3.inp")))
    model.options.time.duration = HOURS * 3600
    with TemporaryDirectory() as folder:
        flows = wntr.sim.EpanetSimulator(model).run_sim(file_prefix=f"{folder}/net3").link["flowrate"]
    junctions = list(model.junction_name_list)
    number = {name: at for at, name in enumerate([*junctions, *model.tank_name_list, *model.reservoir_name_list])}
    links: Links = []
    for name, link in model.links():
        volume = np.pi * link.diameter**2 / 4 * link.length if name in model.pipe_name_list else 0.0
        flow = flows[name].to_numpy()[:HOURS].astype(float)
        links.append((number[link.start_node_name], number[link.end_node_name], float(volume), flow))
    return junctions, links


def _downstream(links: Links, hour: int) -> dict[int, list[tuple[int, float]]]:
    """Return where the water of each node flows in this hour, and the seconds that it takes."""
    after: dict[int, list[tuple[int, float]]] = {}
    for start, end, volume, flow in links:
        rate = float(flow[hour])
        if abs(rate) > _STILL:
            here, there = (start, end) if rate > 0 else (end, start)
            after.setdefault(here, []).append((there, volume / abs(rate)))
    return after


def _reached(by_hour: list[dict[int, list[tuple[int, float]]]], source: int, hour: int) -> NDArray[np.int64]:
    """Return the nodes that a contamination reaches in time: earliest arrivals, by Dijkstra's algorithm."""
    start = hour * 3600.0
    arrived: dict[int, float] = {}
    queue = [(start, source)]
    while queue:
        time, node = heapq.heappop(queue)
        if node in arrived:
            continue
        arrived[node] = time
        for there, seconds in by_hour[int(time // 3600) % HOURS].get(node, ()):
            if there not in arrived and time + seconds <= start + IN_TIME:
                heapq.heappush(queue, (time + seconds, there))
    return np.array(sorted(arrived))
