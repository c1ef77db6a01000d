"""A Ray cluster of several nodes on this machine, for tests that are skipped where Ray is not installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ptt.processes import set_for_children

__all__ = ["cluster_of_nodes", "cluster_with", "complete", "on_ray"]
NODES = 3
MEMORY = {"object_store_memory": 100 << 20}
with_ray = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore"),  # Ray's own, of sockets and processes that it leaves to the end
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed; make test-ray installs it"),
]


def on_ray(function: Any) -> Any:
    for mark in with_ray:
        function = mark(function)
    return function


@contextmanager
def cluster_with(cores: int) -> Iterator[Any]:
    """A cluster of a head with so many cores; other nodes may be added."""
    import ray
    from ray import cluster_utils

    environment = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "120",  # 30 are not enough on a machine that is busy
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    with set_for_children(environment):
        nodes = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": cores, **MEMORY})
        try:
            yield nodes
        finally:
            ray.shutdown()
            nodes.shutdown()


def complete(nodes: Any) -> None:
    """Add nodes of a core each until there are enough beside the head."""
    while len(nodes.worker_nodes) < NODES - 1:
        nodes.add_node(num_cpus=1, **MEMORY)
    nodes.wait_for_nodes()


@pytest.fixture(name="cluster")
def cluster_of_nodes() -> Iterator[Any]:
    """A cluster of a head and two more nodes with a core each."""
    with cluster_with(cores=1) as nodes:
        complete(nodes)
        yield nodes
