"""vLLM's ports, as of 0.33 (vllm/config/parallel.py, vllm/envs.py, v1/engine/utils.py)."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.engines import _ports
from deploy.engines._ports import Port, Said

# {KV connector: (variable, default)} of those that listen at a place that is known beforehand
# (distributed/kv_transfer/kv_connector/v1).
CONNECTORS = {
    "NixlConnector": ("VLLM_NIXL_SIDE_CHANNEL_PORT", 5600),
    "MooncakeConnector": ("VLLM_MOONCAKE_BOOTSTRAP_PORT", 8998),
}


def ports(said: Said) -> tuple[Port, ...]:
    """A headless node answers nothing."""
    return _ports.listed(_each(said))


def _each(said: Said) -> Iterator[tuple[int | None, str]]:
    if "headless" not in said:
        yield from _ports.http(said)
        yield said.number("grpc-port"), "gRPC"
    ranks = said.number("data-parallel-size", 1) or 1
    if said.rank == 0:
        if said.nodes > 1:
            yield said.number("master-port", 29501), "rendezvous"
        here = said.number("data-parallel-size-local", ranks // said.nodes) or 0
        if ranks > max(here, 1):  # else the engines shake hands over files
            yield said.number("data-parallel-rpc-port", 29550), "data parallel handshake"
    connector = str(said.document("kv-transfer-config").get("kv_connector", ""))
    if connector in CONNECTORS:
        variable, default = CONNECTORS[connector]
        yield _ports.number(said.env.get(variable, ""), default), "KV transfer"
    yield from _ports.zmq_events(said, ranks)
