"""Measurements as they come out of real ones, for what is made from them: gates, reports, diffs, lists."""

from __future__ import annotations

from typing import Any

from deploy.measuring import acceptance
from deploy.measuring.measurement import (
    Acceptance,
    Figure,
    Measurement,
    On,
    Percentiles,
    Quality,
    Rung,
    Share,
    Witness,
)

KINDS = ("arithmetic", "code", "prose", "reasoning")
AT = 1_796_000_000.0


def figure(value: float, spread: float = 0.02, rounds: int = 5) -> Figure:
    """A mean with a band of plus and minus `spread` of it, from rounds that lie in it."""
    values = tuple(round(value * (1 + spread * (2 * i / max(1, rounds - 1) - 1)), 6) for i in range(rounds))
    return Figure(value=value, low=value * (1 - spread), high=value * (1 + spread), rounds=values)


def percentiles(p50: float, p95: float, p99: float) -> Percentiles:
    return Percentiles(p50=figure(p50), p95=figure(p95), p99=figure(p99))


def rung(concurrency: int, tok_s: float, length: float | None, **more: Any) -> Rung:
    stream = tok_s / concurrency
    fields: dict[str, Any] = {
        "concurrency": concurrency,
        "rounds": 5,
        "requests": 40,
        "tokens": 2560,
        "truncated": 12,
        "seconds": 2560 / tok_s,
        "tok_s": figure(tok_s),
        "tok_s_stream": figure(stream * 1.1),
        "accept_length": None if length is None else figure(length, 0.005),
        "ttft": percentiles(0.05 * concurrency**0.5, 0.08 * concurrency**0.5, 0.1 * concurrency**0.5),
        "itl": percentiles(1 / stream, 2.2 / stream, 3 / stream),
        "goodput": figure(tok_s / 64),
        "client_busy": 0.04,
        "watts": 2900.0,
        "gpu_bytes": 8 * 88 << 30,
    }
    return Rung(**{**fields, **more})


def share(length: float, steps: int = 200, requests: int = 10) -> Share:
    return Share(
        accept_length=length,
        low=max(1.0, length - 0.1),
        high=length + 0.1,
        steps=steps,
        accepted=round((length - 1) * steps),
        requests=requests,
    )


def accepted(length: float) -> Acceptance:
    steps = round(7680 / length)
    first = min(0.95, (length - 1) / 2)
    return Acceptance(
        accept_length=length,
        low=max(1.0, length - 0.08),
        high=length + 0.08,
        generated=7680,
        steps=steps,
        drafted=3 * steps,
        accepted=round((length - 1) * steps),
        definition=acceptance.DEFINITION,
        source="the answers",
        by_class={kind: share(max(1.0, length + 0.2 * (n - 1.5))) for n, kind in enumerate(KINDS)},
        by_concurrency={"1": share(length), "8": share(length)},
        positions=(first, first * 0.8, first * 0.6),
    )


def on(run: str, draft: str | None = "a1b2c3d4e5f6", **more: Any) -> On:
    fields: dict[str, Any] = {
        "run": run,
        "hosts": ("gpu1",),
        "digest": "0123456789ab",
        "draft": draft,
        "draft_path": "ckpt/kimi-k2.5-eagle3" if draft else None,
        "model": "/shared/kimi-k2.5-int4",
        "model_id": "feedc0ffee12",
        "engine": "sglang",
        "engine_version": "0.5.23",
        "gpus": ("NVIDIA RTX PRO 6000 Blackwell Server Edition",) * 8,
        "num_steps": 3 if draft else None,
        "commands": ("python3 load.py < round.json",),
        "prompts": "mixed",
        "prompts_digest": "5eedf00d5eed",
        "max_tokens": 64,
        "concurrency": (1, 8),
    }
    return On(**{**fields, **more})


def made(length: float | None, tok_s: float, run: str, **more: Any) -> Measurement:
    """A measurement of two rungs; without a length it is one without speculation."""
    fields: dict[str, Any] = {
        "at": AT,
        "seconds": 61.5,
        "on": on(run, draft=None if length is None else "a1b2c3d4e5f6"),
        "rungs": (rung(1, tok_s, length), rung(8, tok_s * 5.2, length)),
        "acceptance": None if length is None else accepted(length),
        "no_acceptance": "nothing is drafted" if length is None else "",
        "witnesses": () if length is None else (Witness(source="log", accept_length=length, agrees=True),),
    }
    return Measurement(**{**fields, **more})


def baseline() -> Measurement:
    return made(None, 27.0, "20261201-080000-ba5e11")


def healthy() -> Measurement:
    base = baseline().against()
    last = made(3.05, 63.0, "20261130-170000-900d00").against()
    return made(
        3.1,
        64.8,
        "20261201-090000-0000a1",
        baseline=base,
        last_good=last,
        speedup={"1": figure(2.4), "8": figure(1.6)},
        quality=Quality(compared=8, differ=0),
    )


def partial() -> Measurement:
    return made(1.62, 36.0, "20261201-100000-0000a2", baseline=baseline().against(), speedup={"1": figure(1.33)})


def dead() -> Measurement:
    first = {"prompt": "prose/1", "with": "The lamp is out.", "without": "The lamp was lit.", "at": "9"}
    return made(
        1.0,
        25.3,
        "20261201-110000-0000a3",
        baseline=baseline().against(),
        speedup={"1": figure(0.94), "8": figure(0.9)},
        quality=Quality(compared=8, differ=1, unstable=0, first=first),
        witnesses=(Witness(source="log", accept_length=1.0, agrees=True),),
    )


def nothing(why: str = "others asked meanwhile") -> Measurement:
    return Measurement(at=AT, why=why, on=on("20261201-120000-0000a4"))
