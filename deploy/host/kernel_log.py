"""What the kernel said of broken GPUs (Xid, SXid) and of processes that it killed for want of memory, as JSON.

Its log is read by syslog(2), or from the journal where that is forbidden; its old lines are lost in time, so `since`
tells how far back it goes. Times are this host's clock, seconds since 1970.
"""

# Sent to hosts as a program: standard library only, Python 3.8 or newer.

from __future__ import annotations

import json
import re
import time
from typing import Any

from deploy.host.answers import ended
from deploy.host.ring import ring

MOST, WIDEST = 200, 400  # lines, and characters of each
# printk's own stamp, seconds since boot, and with CONFIG_PRINTK_CALLER who spoke
STAMP = re.compile(r"(?:<\d+>)?\[ *(\d+\.\d+)\](?:\[ *[CT]\d+\])? ?")
# nvidia.ko: "NVRM: Xid (PCI:0000:41:00): 79, ..."; nvidia-nvswitch: "SXid (PCI:0000:00:00.0): 11001, ...";
# mm/oom_kill.c: "Out of memory: Killed process 12 (name) ...", "Memory cgroup out of memory: Killed process ..."
TOLD = re.compile(r"\bS?Xid \(|\bKilled process \d+ ")
# of journalctl(1); a line is "1764540000.123456 host kernel: words"
JOURNAL = ("journalctl", "-k", "-b", "--no-pager", "-q", "-o", "short-unix", "-n", "20000")
ENTRY = re.compile(r"(\d+\.\d+) \S+ kernel: (.*)")
PATIENCE = 10.0  # seconds


def of_ring(lines: list[str], booted: float) -> list[tuple[float | None, str]]:
    """(when, words) of lines with printk's stamps."""
    found = []
    for line in lines:
        stamp = STAMP.match(line)
        words = line[stamp.end() :] if stamp else re.sub(r"^<\d+>", "", line)
        found.append((booted + float(stamp[1]) if stamp else None, words))
    return found


def of_journal(text: str) -> list[tuple[float | None, str]]:
    """(when, words) of what journalctl printed."""
    entries = (ENTRY.match(line) for line in text.splitlines())
    return [(float(entry[1]), entry[2]) for entry in entries if entry]


def listen(booted: float) -> tuple[list[tuple[float | None, str]], str]:
    """All lines, and why there are none."""
    try:
        return of_ring(ring(), booted), ""
    except OSError as error:
        forbidden = f"its log may not be read: {error.strerror}"
    _, out, err = ended(PATIENCE, *JOURNAL)
    lines = of_journal(out)
    words = (err or out).strip()[-WIDEST:] or "it shows no line of the kernel's"
    return lines, "" if lines else f"{forbidden}; journalctl: {words}"


def answer() -> dict[str, Any]:
    now = time.time()
    with open("/proc/uptime", encoding="ascii") as file:
        booted = now - float(file.read().split()[0])
    lines, error = listen(booted)
    told = [(at, words[:WIDEST]) for at, words in lines if TOLD.search(words)]
    since = next((at for at, _ in lines if at is not None), None)
    return {
        "lines": told[-MOST:],
        "left_off": len(told[:-MOST]),
        "since": since,
        "booted": booted,
        "now": now,
        "error": error,
    }


if __name__ == "__main__":
    print(json.dumps(answer()))
