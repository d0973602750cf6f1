"""Numbers and facts in words for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deploy.events import Event
from deploy.text.legible import clean, one_line

LARGEST = 1e18  # nothing that is measured here comes near; beyond are NaN and the infinities too


def last_lines(text: str, count: int = 30, limit: int = 500) -> list[str]:
    """The last `count` clean lines of a text, each at most `limit` characters, and a word on what was left out."""
    lines = _clean_lines(text, limit)
    left_out = len(lines) - count
    return lines if left_out <= 0 else [f"({left_out} lines before)", *lines[-count:]]


def evidence_of(failed: Event, count: int = 30, limit: int = 500) -> list[str]:
    """What shows a failure, in lines. A log's end is what matters; of a gate's evidence it is the beginning."""
    text = str(failed.facts.get("evidence") or "")
    if failed.facts.get("error") != "GateFailed":
        return last_lines(text, count, limit)
    lines = _clean_lines(text, limit)
    left_out = len(lines) - count
    return lines if left_out <= 0 else [*lines[:count], f"({left_out} lines more)"]


def _clean_lines(text: str, limit: int) -> list[str]:
    lines = [line.rstrip() for line in clean(text).strip("\n").rstrip().split("\n")]
    kept = [line if len(line) <= limit else line[: limit - 1] + "…" for line in lines]
    return kept if kept != [""] else []


def seconds(value: float) -> str:
    """A duration: 3.2s, 5m41s, 1h05m."""
    if value < 59.95:
        return f"{max(value, 0.0):.1f}s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


def size(value: float) -> str:
    """A number of bytes: 512 B, 1.1 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def number(value: Any) -> float | None:
    """The value where it is a number, for facts that may be missing or masked."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < LARGEST else None


def share(facts: Mapping[str, Any]) -> float | None:
    """How much of the work is done, 0 to 1, or None where that is not known."""
    done, total = number(facts.get("done")), number(facts.get("total"))
    return min(max(done / total, 0.0), 1.0) if done is not None and total else None


def progress(facts: Mapping[str, Any], since: float = 0.0) -> str:
    """How far it is, `since` seconds after it was told: 33%  366.0 MB of 1.1 GB  406.0 MB/s  2s left; of a server's
    start 45%  for 1m02s  ~4m10s to ready. Empty where nothing was told.
    """
    unit = str(facts.get("unit") or "")
    done, total, rate = (number(facts.get(key)) for key in ("done", "total", "rate"))
    part = share(facts)
    words = [] if part is None else [f"{int(part * 100)}%"]
    if done is not None and unit:
        words.append(_amount(done, total, unit))
    if rate is not None and unit:
        words.append(f"{size(rate)}/s" if _is_bytes(unit) else f"{rate:.1f}/s")
    elapsed, left = number(facts.get("elapsed")), number(facts.get("left"))
    if left is None and rate and done is not None and total and done < total:
        words.append(f"{_whole((total - done) / rate)} left")
    if elapsed is not None and elapsed + since >= 1:
        words.append(f"for {_whole(elapsed + since)}")
    if left is not None and left - since >= 1:  # what takes longer than it ever did is told by how long it takes
        words.append(f"~{_whole(left - since)} to ready")
    return "  ".join(words)


def _whole(value: float) -> str:
    return seconds(round(value)).replace(".0s", "s")


def headline(facts: Mapping[str, Any], hosts: int = 4) -> str:
    """What a run is: up kimi-eagle3 on gpu1, gpu2 (run 20261129-201530-a1b2c3)."""
    run = f" (run {facts['id']})" if facts.get("id") else ""
    return f"{title(facts, hosts)}{run}"


def title(facts: Mapping[str, Any], hosts: int = 4) -> str:
    """What a run does and where, with at most `hosts` hosts named."""
    named = [str(host) for host in facts.get("hosts") or ()]
    where = ", ".join(named) if len(named) <= hosts else f"{len(named)} hosts"
    words = what(str(facts.get("command") or "run"), str(facts.get("profile") or ""))
    return one_line(f"{words} on {where}" if where else words)


def what(command: str, profile: str) -> str:
    """A command with its profile, which it may have named itself: up profile=kimi, smoke kimi."""
    return command if not profile or f"profile={profile}" in command.split() else f"{command} {profile}"


def is_stop(failure: Event) -> bool:
    """Whether a failure is none: somebody stopped the work."""
    return failure.facts.get("error") == "Interrupted"


def is_good(finding: Event) -> bool:
    """Whether a finding is one that nobody needs to hear of."""
    return finding.facts.get("verdict") == "PASS"


def finding(event: Event) -> str:
    """A finding in one line: verdict, check, what, and whether it was waived."""
    facts = event.facts
    what = str(facts.get("what") or event.text)
    waived = " (waived)" if facts.get("waived") else ""
    return one_line(f"{facts.get('verdict', '')} {facts.get('check', '')}: {what}{waived}")


def evidence(same: list[Event]) -> str:
    """Where the evidence of some hosts lies: of one its folder, of several the folder above theirs."""
    hosts = ", ".join(dict.fromkeys(event.host for event in same if event.host))
    folders = [str(event.facts.get("folder") or "") for event in same]
    where = folders[0] if len(same) == 1 else folders[0].partition(f"/{one_line(same[0].host)}/")[0]
    return f"evidence of {hosts}: {same[0].text}{f', in {where}' if where else ''}"


def said(event: Event) -> str:
    """What a step says of itself: its phase and its words."""
    phase = one_line(" ".join(str(event.facts.get(key) or "") for key in ("component", "phase")))
    words = " ".join(filter(None, (one_line(event.text), _behind(event.facts.get("behind")))))
    return words if words.startswith(phase) else f"{phase}: {words}" if words else phase


def _behind(ranks: Any) -> str:
    """Which ranks the others wait for, at most three of them named."""
    if not isinstance(ranks, list) or not ranks:
        return ""
    named = ", ".join(one_line(str(rank), 40) for rank in ranks[:3])
    return f"(behind: {named})" if len(ranks) <= 3 else f"(behind: {named} and {len(ranks) - 3} more)"


def doing(event: Event) -> str:
    """What a step says of itself, and how far it is."""
    return "  ".join(word for word in (said(event), progress(event.facts)) if word)


def verdict_lines(verdict: Mapping[str, Any]) -> list[str]:
    """What was measured, each gate with what was wanted, and what was waived."""
    gates = verdict.get("gates") or []
    lines = [_gate(gate) for gate in gates]
    judged = [gate.get("name") for gate in gates]
    others = [name for name in ("accept_length", "tok_s", "tokens_per_second", "speedup") if name not in judged]
    lines += [_measured(name, verdict[name]) for name in others if verdict.get(name) is not None]
    if verdict.get("waived"):
        lines.append(f"waived: {', '.join(map(str, verdict['waived']))}")
    return [one_line(line) for line in lines]


def _gate(gate: Mapping[str, Any]) -> str:
    """What was measured, within which noise, what was wanted, and what comes of it; records of old tell less."""
    margin, bar = number(gate.get("margin")), number(gate.get("bar"))
    noise = f" ± {_worth(margin)}" if margin else ""
    multiple = f" = {_worth(bar)}, of run {gate['run']}" if gate.get("run") and bar is not None else ""
    unknown = "state" in gate and gate.get("holds") is None
    outcome = "cannot be told" if unknown else "holds" if gate.get("holds") else "FAILS"
    why = f": {gate['why']}" if gate.get("why") else ""
    measured = _measured(gate.get("name"), gate.get("measured"))
    return f"{measured}{noise}, wanted {gate.get('wanted')}{multiple}: {outcome}{why}"


def _measured(name: Any, value: Any) -> str:
    worth = number(value)
    shown = "not measured" if value is None else value if worth is None else _worth(worth)
    return f"{str(name).replace('tok_s', 'tok/s').replace('_', ' ')} {shown}"


def _worth(value: float) -> str:
    return f"{value:.2f}" if 1 <= value < 100 else f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def _amount(done: float, total: float | None, unit: str) -> str:
    if _is_bytes(unit):
        return size(done) if total is None else f"{size(done)} of {size(total)}"
    return one_line(f"{done:g}{'' if total is None else f'/{total:g}'} {unit}")


def _is_bytes(unit: str) -> bool:
    return unit in ("B", "bytes")
