"""Ask the kernel or a program of the host, and get words in any case: a part of programs, no program.

Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import subprocess

WORDS = 256 << 10  # characters that are kept of what one says


def program(seconds: float, *argv: str) -> str:
    """What a program says within so many seconds, the end of it where that is long, and how it ended if not well."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=seconds)
    except FileNotFoundError:
        return f"there is no {argv[0]}\n"
    except subprocess.TimeoutExpired:
        return f"{argv[0]}: no answer within {seconds:g} s\n"
    except OSError as error:
        return f"{argv[0]}: {error.strerror}\n"
    words = (done.stdout + done.stderr).decode("utf-8", "replace")[-WORDS:]
    return f"{words.rstrip()}\n({argv[0]} ended with status {done.returncode})\n" if done.returncode else words


def ended(seconds: float, *argv: str) -> tuple[int | None, str, str]:
    """(status, stdout, stderr) of a program; the status is None where it was not there, or too slow, and stderr why."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, "", str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def file(path: str) -> str:
    """A small file of the kernel's, or why it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as opened:
            return opened.read(WORDS)
    except OSError as error:
        return f"cannot be read: {error.strerror}\n"
