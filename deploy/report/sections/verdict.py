"""What it came to: the word, the numbers that count, each gate, what failed and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deploy.measuring.measurement import Measurement
from deploy.report import words
from deploy.report.blocks import Block, Cell, Code, Section, Table, Text, Tile, Tiles, Tone
from deploy.report.document import Gate, Measured, Run, Trouble

CODES = {0: ("holds", "good"), 9: ("fails", "bad"), 10: ("undecided", "warn"), 130: ("stopped", "warn")}
SAYS: Mapping[str, Tone] = {"FAIL": "bad", "WARN": "warn", "cannot tell": "soft", "ok": "good"}
FEW = 12  # failures told one by one; a fleet may have hundreds that are alike


def word(run: Run) -> tuple[str, Tone]:
    """The verdict in a word, by the exit code, and its colour."""
    if run.exit_code is None:
        return "not ended", "warn"
    told, tone = CODES.get(run.exit_code, ("failed", "bad"))
    if run.exit_code == 0 and not run.gates:
        told = "done"  # nothing was judged
    return told, tone  # type: ignore[return-value]


def section(run: Run) -> Section:
    """Never missing: every run comes to something."""
    return Section("Verdict", tuple(_blocks(run)))


def _blocks(run: Run) -> Iterator[Block]:
    cut = "The client did not end it. Its last words: " if run.exit_code is None else ""
    yield Text(f"{cut}{run.text}", word(run)[1])
    if tiles := tuple(_tiles(run)):
        yield Tiles(tiles)
    untold = (measured for measured in run.measured if measured.measurement.why)
    yield from (Text(f"No number of {one.host} is kept: {one.measurement.why}", "warn") for one in untold)
    if run.gates:
        yield gates(run.gates)
    if run.waived:
        yield Text(f"Let pass by name: {', '.join(run.waived)}", "warn")
    yield from _troubles(run)
    yield from (Text(note) for note in run.notes)


def _troubles(run: Run) -> Iterator[Block]:
    """What failed, and what is behind it."""
    for trouble in run.troubles[:FEW]:
        yield from _trouble(trouble, told=run.text)
    if len(run.troubles) > FEW:
        yield Text(f"... and {len(run.troubles) - FEW} more", "soft")
    for measured in run.measured:
        yield from _diagnosis(measured, told=run.text)


def _tiles(run: Run) -> Iterator[Tile]:
    """The numbers of each host that was measured; where none was kept, those of the run's own words."""
    told = [one for one in run.measured if one.measurement.rungs]
    for one in told:
        where = f" on {one.host}" if len(told) > 1 else ""
        yield from _of(one.measurement, where, dict(_tones(run.gates)))
    if not told:
        yield from (Tile(words.name(name), words.value(value, name)) for name, value in run.told.items())


def _of(measurement: Measurement, where: str, tones: dict[str, Tone]) -> Iterator[Tile]:
    found = measurement.figures()
    if total := measurement.alone:
        value = f"{total.accept_length:.2f}"
        note = f"{total.low:.2f} to {total.high:.2f}" if total.low is not None and total.high is not None else ""
        yield Tile(f"accept length{where}", value, note, tones.get("accept_length", ""))
    streams = min((rung.concurrency for rung in measurement.rungs), default=1)
    for name in ("speedup", "tok_s", "ttft_p95", "itl_p95"):
        if figure := found.get(name):
            band = (
                ""
                if figure.low is None or figure.high is None
                else (f"{words.value(max(figure.low, 0.0), name)} to {words.value(figure.high, name)}")
            )
            many = f"{streams} stream{'' if streams == 1 else 's'}"
            told = ", ".join(filter(None, (many, band)))
            value = f"{words.value(figure.value, name)}{' x' if name == 'speedup' else ''}"
            yield Tile(f"{words.name(name)}{where}", value, told, tones.get(name, ""))


def _tones(gates: tuple[Gate, ...]) -> Iterator[tuple[str, Tone]]:
    yield from ((gate.name, tone) for gate in gates if (tone := verdict(gate).tone) != "soft")


def verdict(gate: Gate) -> Cell:
    """Whether it holds, in words with their colour."""
    if gate.holds is None:
        return Cell("not measured" if gate.state == "unmeasured" else "undecided", "warn")
    if gate.state == "alone":
        return Cell("holds: nothing to compare with", "soft")
    return Cell("holds", "good") if gate.holds else Cell("FAILS", "bad")


def gates(told: tuple[Gate, ...]) -> Table:
    """Each gate with what was measured and its bar; columns that nothing stands in are left out."""
    columns: dict[str, list[str | Cell]] = {
        "host": [gate.host for gate in told],
        "gate": [words.name(gate.name) for gate in told],
        "measured": [_in_its_unit(gate.measured, gate.name) for gate in told],
        "noise": [f"± {_in_its_unit(gate.margin, gate.name)}" if gate.margin else "" for gate in told],
        "rounds": [str(gate.rounds or "") for gate in told],
        "wanted": [_wanted(gate) for gate in told],
        "verdict": [verdict(gate) for gate in told],
        "why": [gate.why for gate in told],
    }
    kept = {name: cells for name, cells in columns.items() if any(cells)}
    return Table(tuple(kept), tuple(zip(*kept.values(), strict=True)), frozenset({"measured", "noise", "rounds"}))


def _in_its_unit(value: float | None, measure: str) -> str:
    """Times in seconds, as their bars are written."""
    if value is None or not measure.startswith(words.SECONDS):
        return words.value(value, measure)
    return f"{value:.3f} s"


def _wanted(gate: Gate) -> str:
    """The bar, and where it is a multiple what that comes to."""
    if gate.run and gate.bar is not None:
        return f"{gate.wanted} = {_in_its_unit(gate.bar, gate.name)}, of run {gate.run}"
    return f"{gate.wanted} s" if gate.name.startswith(words.SECONDS) and " x " not in gate.wanted else gate.wanted


def _trouble(trouble: Trouble, told: str) -> Iterator[Block]:
    where = " ".join(filter(None, (trouble.host, trouble.step)))
    if trouble.what != told:  # which stands above all
        yield Text(f"{where}: {trouble.what}" if where else trouble.what, "warn" if trouble.stopped else "bad")
    if trouble.evidence:
        yield Code(trouble.evidence, "evidence")
    if trouble.remedy:
        yield Text(f"What to do: {trouble.remedy}")


def _diagnosis(measured: Measured, told: str) -> Iterator[Block]:
    """What the checkpoint doctor says of each cause that acceptance may be low by, in their order."""
    title, by = (str(measured.diagnosis.get(name) or "") for name in ("title", "by"))
    causes = [cause for cause in measured.diagnosis.get("causes") or () if isinstance(cause, dict)]
    if title and title not in told:
        yield Text(title, "bad" if causes else "")
    if causes:
        says = f"what they say{f', by {by}' if by else ''}"
        head = ("what may be why, likeliest first", "the draft's files", says, "it looks like", "to try")
        yield Table(head, tuple(map(_cause, causes)))


def _cause(cause: Mapping[str, Any]) -> tuple[str | Cell, ...]:
    told = {
        name: str(cause.get(name) or "") for name in ("title", "says", "what", "evidence", "looks_like", "seen", "next")
    }
    says = Cell(told["says"], SAYS.get(told["says"], ""))
    seen = f"here: {told['seen']}" if told["seen"] else ""
    return told["title"], says, _lines(told["what"], told["evidence"]), _lines(told["looks_like"], seen), told["next"]


def _lines(*texts: str) -> str:
    return "\n".join(filter(None, texts))
