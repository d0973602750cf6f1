"""When something ends, as people write and read it: `until 18:00`, `for 90m`; in 1 h 20 min.

Between machines go seconds from now, never times of day: clocks differ.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from deploy.errors import ConfigError
from deploy.text.legible import clean

LONGEST = 7 * 24 * 3600  # seconds; beyond that a hold is only forgotten
CENTURY = 100 * 365 * 24 * 3600  # seconds; what is longer is told without its length
WHY = 200  # characters of a reason; the lock's file must fit into one page, which is written at once or not at all
EXAMPLES = "until 18:00, until tomorrow 9:00, until Monday 9:00, until 2026-11-30 18:00, for 90m, for 1h30m, for 2 days"
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
UNITS = {"s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hr": 3600, "hour": 3600}
UNITS |= {"d": 86400, "day": 86400, "w": 604800, "week": 604800}

_END = re.compile(r"(?P<why>.*)(?<!\S)(?P<kind>until|till|for)\s+(?P<end>.+)", re.DOTALL | re.IGNORECASE)
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)[\s,]*")
_CLOCK = re.compile(r"(?:(?P<day>[a-z]+)\s+)?(?:at\s+)?(?P<hour>\d{1,2}):(?P<minute>\d{2})", re.IGNORECASE)


def parse(text: str, now: datetime) -> tuple[str, float]:
    """(why, seconds from `now`) of "bench until 18:00"; the end stands last, in our own time zone.

    ConfigError where there is no end, or none that can be read, or one in the past or beyond seven days.
    """
    found = _END.fullmatch(text.strip())
    if not found:
        raise ConfigError(f"{text!r} has no end", remedy=f"say until when: {EXAMPLES}")
    seconds = _duration(found["end"]) if found["kind"].lower() == "for" else _until(found["end"], now)
    why = " ".join(clean(found["why"]).split()).rstrip(",;:")
    if not why:
        raise ConfigError(f"{text!r} does not say why", remedy='others will ask: "bench until 18:00"')
    if len(why) > WHY:
        raise ConfigError(f"{why[:40]!r}... is too long a reason", remedy=f"say it in {WHY} characters")
    if seconds <= 0:
        bare = re.fullmatch(r"[\d:]+", found["end"])
        remedy = f"did you mean until tomorrow {found['end']}?" if bare else f"say until when: {EXAMPLES}"
        raise ConfigError(f"{found['end']!r} is in the past, by {span(-seconds)}", remedy=remedy)
    if seconds > LONGEST:
        far = f"is in {span(seconds)}" if seconds < CENTURY else "is no time of these days"
        raise ConfigError(f"{_short(found['end'])!r} {far}; the longest is 7 days", remedy="hold it again then")
    return why, seconds


def since(text: str, now: datetime) -> float:
    """Seconds since the epoch of "2h" or "3 days" ago, "today", "yesterday", a date, or a date and a time, in our own
    time zone. ConfigError for what is none of these.
    """
    said = text.strip().lower()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if said in ("today", "yesterday"):
        return (midnight - timedelta(days=said == "yesterday")).timestamp()
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        pass
    try:
        return (now - timedelta(seconds=_duration(said.removesuffix("ago").strip()))).timestamp()
    except (ConfigError, OverflowError) as error:
        remedy = "as in: 2h, 3 days, today, yesterday, 2026-11-30, 2026-11-30T18:00"
        raise ConfigError(f"{_short(text)!r} is no time that runs could be listed since", remedy=remedy) from error


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


def _duration(text: str) -> float:
    amounts = _AMOUNT.findall(text.lower())
    units = [UNITS.get(unit) or UNITS.get(unit.rstrip("s")) for _, unit in amounts]
    if not amounts or None in units or _AMOUNT.sub("", text.lower()).strip():
        raise ConfigError(f"{text!r} is no duration", remedy=f"say until when: {EXAMPLES}")
    return sum(float(amount) * (unit or 0) for (amount, _), unit in zip(amounts, units, strict=True))


def _until(text: str, now: datetime) -> float:
    clock = _CLOCK.fullmatch(text.strip())
    end = _at(clock, now) if clock else _date(text.strip())
    if end is None:
        raise ConfigError(f"{text!r} is no time", remedy=f"say until when: {EXAMPLES}")
    try:
        return end.timestamp() - now.timestamp()
    except (ValueError, OverflowError):  # the years 1 and 9999 have times that no clock of a zone can tell
        raise ConfigError(f"{text!r} is no time of these days", remedy=f"say until when: {EXAMPLES}") from None


def _at(clock: re.Match[str], now: datetime) -> datetime | None:
    """A time of day: of today, or of the day that is named."""
    hour, minute, day = int(clock["hour"]), int(clock["minute"]), (clock["day"] or "today").lower()
    if hour > 23 or minute > 59:
        return None
    here = now.replace(tzinfo=None, hour=hour, minute=minute, second=0, microsecond=0)  # local, whatever DST does
    if day in ("today", "tomorrow"):
        return here + timedelta(days=day == "tomorrow")
    named = [number for number, name in enumerate(DAYS) if len(day) >= 3 and name.startswith(day)]
    if not named:
        return None
    here += timedelta(days=(named[0] - here.weekday()) % 7)
    return here if here > now.replace(tzinfo=None) else here + timedelta(days=7)


def _date(text: str) -> datetime | None:
    """An ISO date with a time of day: a day alone would be read as its beginning by some, as its end by others."""
    found = re.fullmatch(r"(\d{4}-\d{2}-\d{2})[T ]\s*(\d{1,2})(:\d{2}.*)", text)
    if not found:
        return None
    try:
        return datetime.fromisoformat(f"{found[1]}T{found[2]:>02}{found[3]}")
    except ValueError:
        return None


def told(left: float, now: datetime) -> str:
    """`until 18:00 (in 1 h 20 min)`, in the time zone of `now`."""
    end = now + timedelta(seconds=left)
    exact = left < 90
    if not exact:
        end = (end + timedelta(seconds=30)).replace(second=0)
    days = (end.date() - now.date()).days
    day = "" if days == 0 else "tomorrow " if days == 1 else f"{end:%a %Y-%m-%d} "
    return f"until {day}{end.strftime('%H:%M:%S' if exact else '%H:%M')} (in {span(left)})"


def span(seconds: float) -> str:
    """A duration in its two largest units: 45 s, 20 min, 1 h 20 min, 2 d 3 h."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s"
    minutes = round(seconds / 60)
    days, hours, rest = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = [(days, "d"), (hours, "h"), (rest, "min")] if days == 0 else [(days, "d"), (hours, "h")]
    return " ".join(f"{amount} {unit}" for amount, unit in parts if amount)
