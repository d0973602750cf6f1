"""SGLang's ports, 0.5.8 to 0.5.23 (`PortArgs` in srt/server_args.py; who binds the others is said at each)."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.engines import _ports
from deploy.engines._ports import Port, Said

DELTA = 233  # ZMQ_TCP_PORT_DELTA: from --port to the block of attention data parallelism, without --dist-init-addr
OVERRIDE = "SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE"  # the rendezvous is somebody else's

# What binds a port on the head: (flag that says it, its default, the flag or flag=value that makes it do so, what for).
BY_FLAG = (
    ("disaggregation-bootstrap-port", 8998, "disaggregation-mode=prefill", "disaggregation bootstrap"),
    ("disaggregation-bootstrap-port", 8998, "enable-pd-role-switch", "disaggregation bootstrap"),  # disagg_service.py
    ("encoder-bootstrap-port", 8997, "language-only", "encoder bootstrap"),  # managers/tokenizer_manager.py
    (
        "engine-info-bootstrap-port",
        6789,
        "remote-instance-weight-loader-start-seed-via-transfer-engine",
        "engine info bootstrap",  # entrypoints/engine.py
    ),
    ("gated-launch-port", None, "gated-launch-port", "gated launch"),  # distributed/gated_launch.py
)


def ports(said: Said) -> tuple[Port, ...]:
    """A follower answers on --port as well (entrypoints/engine.py), so it is every node's."""
    return _ports.listed(_each(said))


def _each(said: Said) -> Iterator[tuple[int | None, str]]:
    yield from _ports.http(said)
    ranks = _attention_ranks(said)
    if ranks > 1:
        yield from _attention(said, ranks)  # looked at on every node (`wait_port_available`), though the head binds it
    if said.rank == 0:
        yield from _rendezvous(said)
        yield from ((said.number(flag, default), what) for flag, default, when, what in BY_FLAG if _asked(said, when))
    yield from _grpc(said)
    yield from _ports.zmq_events(said, ranks)


def _asked(said: Said, when: str) -> bool:
    flag, equals, value = when.partition("=")
    return said.word(flag) == value if equals else flag in said


def _rendezvous(said: Said) -> Iterator[tuple[int | None, str]]:
    """`_resolve_dist_init_method` (srt/distributed/bootstrap.py): --dist-init-addr, else --nccl-port, else a port that
    it finds free itself.
    """
    if said.env.get(OVERRIDE):
        return
    address = said.word("dist-init-addr")
    yield (_ports.of_address(address) if address else said.number("nccl-port")), "rendezvous"


def _attention_ranks(said: Said) -> int:
    """--enable-dp-attention is --attn-dp-size of --dp-size since 0.5.22; without a second rank it is off."""
    by_dp = said.number("dp-size", 1) if "enable-dp-attention" in said else 1
    return max(said.number("attn-dp-size", 1) or 1, by_dp or 1)


def _attention(said: Said, ranks: int) -> Iterator[tuple[int | None, str]]:
    """The rendezvous and the five ports behind it, six since 0.5.18; +1 for each rank with its server in Rust."""
    address = said.word("dist-init-addr")
    first = _ports.of_address(address) if address else said.port + DELTA
    count = 6 if said.since("0.5.18") else 5
    count += ranks if said.on("SGLANG_RUST_SERVER") else 0
    if first is None:
        return
    if first > 65535:
        first = said.port - DELTA
    if not said.env.get(OVERRIDE):
        yield first, "rendezvous"
        yield said.number("nccl-port"), "NCCL"
    base = first - count - 1 if first + count > 65535 else first + 1
    yield from ((base + place, "attention data parallelism") for place in range(count))


def _grpc(said: Said) -> Iterator[tuple[int | None, str]]:
    """Beside HTTP, or in its stead (--smg-grpc-mode, with a sidecar): srt/arg_groups/serving_hook.py."""
    alone = "smg-grpc-mode" in said or "grpc-mode" in said
    port = said.number("grpc-port", _ports.number(said.env.get("SGLANG_GRPC_PORT", "")))
    yield port or (said.port + 10000 if alone else None), "gRPC"
    if alone:
        yield said.number("smg-http-sidecar-port", said.port + 1), "gRPC sidecar"
