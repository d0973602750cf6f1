"""Programs of this machine that the keys of our terminal do not reach, at whatever moment they are pressed."""

from __future__ import annotations

import subprocess
import sys

# Ctrl-C is a SIGINT to the whole process group of whoever is in front; here it is pressed all the time, and whoever
# presses it is not in the group, nor of the same session: a program may die of it just before it has its own.
PRESSED = """
import os, signal, subprocess, sys, threading
from deploy.transport.local import LocalTransport

presses = "import os, signal, sys\\nwhile True: os.killpg(int(sys.argv[1]), signal.SIGINT)"
signal.signal(signal.SIGINT, lambda *_: None)
here, ended = LocalTransport(), []
finger = subprocess.Popen([sys.executable, "-c", presses, str(os.getpid())], start_new_session=True)
try:
    ended += [here.run(["cat"], stdin=b"all of it").stdout for _ in range(60)]
    cat = here.spawn(["cat"], deadline=60)
finally:
    finger.kill()
    finger.wait()
cat.write(b"and lives on")
ended.append(cat.read(timeout=60))
cat.close()
print(ended == [b"all of it"] * 60 + [b"and lives on"], set(ended))
"""


def test_no_program_dies_of_a_key_that_is_pressed_while_it_starts():
    words = [sys.executable, "-c", PRESSED]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, start_new_session=True)
    assert done.stdout.startswith("True "), done
