"""Write files into a folder, each whole or not at all: write.py FOLDER; {name: content} as JSON on stdin.

Each is written under a temporary name, for its owner alone, synced, and renamed. Prints how many;
exit status 1 where one cannot be written, with why on stderr, and nothing of that one is left.
Runs on the host: Python >= 3.8, standard library only.
"""

from __future__ import annotations

import json
import os
import sys


def write(path: str, content: str) -> None:
    temporary = f"{path}.{os.uname().nodename}.{os.getpid()}.tmp"  # hosts may share the folder, and write the same file
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content.encode("utf-8", "surrogateescape"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        sys.exit(f"cannot write {path}: {error.strerror}")


def main(folder: str) -> None:
    files = json.load(sys.stdin)
    for name, content in files.items():
        write(os.path.join(folder, name), content)
    print(len(files))


if __name__ == "__main__":
    main(sys.argv[1])
