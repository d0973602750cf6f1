"""The kernel's log, asked for with syslog(2): a part of programs, no program.

`dmesg` asks so too where it has no /dev/kmsg; kernel.dmesg_restrict, or a container, may forbid it.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import ctypes
import os

READ_ALL, SIZE = 3, 10  # actions of syslog(2)
MOST = 64 << 20  # bytes of the kernel's log


def ring() -> list[str]:
    """The lines of the kernel's log that it still has. OSError where it must not be read."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = libc.klogctl(SIZE, None, 0)
    text = ctypes.create_string_buffer(min(max(size, 1), MOST))
    read = libc.klogctl(READ_ALL, text, len(text)) if size >= 0 else -1
    if read < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return text.raw[:read].decode("utf-8", "replace").splitlines()
