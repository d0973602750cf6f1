"""What the end of a process tells by itself: the kernel's own word, and the status that it left."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from deploy.engines._log import Explanation, Seen

MEMORY = "look at what else uses the host's memory; fewer processes at once, or a host with more of it"

# Signals that a process brings upon itself, by the status that a shell leaves: (name, what it means, what to do).
FAULTS: Mapping[int, tuple[str, str, str]] = MappingProxyType(
    {
        132: ("SIGILL", "an instruction that this CPU does not have", "install wheels that are built for this CPU"),
        134: ("SIGABRT", "it aborted itself: a failed check in native code", "read the last lines of its log"),
        135: ("SIGBUS", "a mapped file gave no page: /dev/shm is full, or a disk failed", "see df /dev/shm, and dmesg"),
        136: ("SIGFPE", "a division by zero in native code", "read the last lines of its log"),
        139: ("SIGSEGV", "a wild access in native code", "see dmesg; try another attention backend or version"),
        126: ("not-executable", "its program may not be executed", "see engine.python and engine.binary"),
        127: ("not-found", "its program was not found", "see engine.python, engine.binary and engine.environment"),
    }
)
# Those that somebody else sends.
SENT: Mapping[int, tuple[str, str, str]] = MappingProxyType(
    {
        129: ("SIGHUP", "its terminal or login was closed", "start it by `deploy up`, which gives it its own session"),
        130: ("SIGINT", "somebody pressed Ctrl-C there", "ask who is on the host: deploy history --hosts"),
        131: ("SIGQUIT", "a process of it failed and told it to end", "read the log before that"),
        143: ("SIGTERM", "somebody asked it to end", "see deploy history --hosts, and `last` on the host"),
    }
)

# Explanations that rest on the status alone.
STATUS = frozenset({"SIGKILL", *(name for name, _, _ in (*FAULTS.values(), *SENT.values()))})


def by_the_kernel(seen: Seen) -> Explanation | None:
    """The kernel killed a process of it for want of memory, and says so."""
    if not seen.oom:
        return None
    return Explanation(
        "oom", "the kernel killed a process of it: the host's memory was full", MEMORY, "\n".join(seen.oom)
    )


def by_a_fault(seen: Seen) -> Explanation | None:
    """It ended by a fault of its own, or a process of it is gone without a word."""
    if seen.exit is not None and seen.exit in FAULTS:
        name, cause, remedy = FAULTS[seen.exit]
        return Explanation(name, f"{name}: {cause}", remedy, f"exit status {seen.exit}")
    if seen.lost:
        cause = f"{seen.lost[0]} is gone without a word, while the launcher lives"
        return Explanation("S46", cause, _unsaid(seen), "\n".join(seen.lost))
    return None


def by_a_signal(seen: Seen) -> Explanation | None:
    """It was killed from outside, and nothing else tells why."""
    if seen.exit is not None and seen.exit in SENT:
        name, cause, remedy = SENT[seen.exit]
        return Explanation(name, f"{name}: {cause}", remedy, f"exit status {seen.exit}")
    if seen.exit == 137:
        cause = "SIGKILL, and no word of its own: mostly the kernel's, for want of host memory, or somebody's kill -9"
        return Explanation("SIGKILL", cause, _unsaid(seen), "exit status 137")
    return None


def _unsaid(seen: Seen) -> str:
    """Where to look for a kill that nobody has told of."""
    if seen.unread:
        return f"whether it was the kernel could not be seen ({seen.unread}): sudo dmesg | grep -i 'killed process'"
    return f"see `dmesg` for the OOM killer; {MEMORY}"
