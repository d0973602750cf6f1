"""What the driver says of each GPU's health, as JSON: the elements that are asked for, out of `nvidia-smi -q -x`.

Runs on the host: Python >= 3.8, standard library only. The whole document is 45 KB a GPU, most of it a list of the
clocks it could be set to, and `-d`, which would choose, does not go with `-x`: so it is thinned here, to 3 KB.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any
from xml.etree import ElementTree as ET

SECONDS = 18  # without persistence the driver wakes each GPU for it; deploy.looking waits a little longer
END = b"</nvidia_smi_log>"
LARGEST = 32 << 20  # bytes of its answer; a sane one has 45 KB a GPU


def answer(*wanted: str) -> dict[str, Any]:
    """{"error", "driver_version", "cuda_version", "attached_gpus", "gpus": [{"id", "told": {path: text}}]}.

    `wanted` are paths below <gpu> as ElementTree takes them, so `a/*` is every child of a. What a driver does not know
    is not there. `gpus` is missing where it told nothing that can be read, and `error` says why.
    """
    try:
        process = subprocess.Popen(
            ["nvidia-smi", "-q", "-x"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        return {"error": "there is no nvidia-smi" if isinstance(error, FileNotFoundError) else str(error)}
    try:
        out, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()  # and not waited for: one that hangs in the kernel does not end
        return {"error": f"nvidia-smi did not answer in {SECONDS} s"}
    return thinned(out, wanted)


def thinned(document: bytes, wanted: tuple[str, ...]) -> dict[str, Any]:
    """What is wanted of its answer; words in the place of a document, or after it, are its error."""
    start, stop = document.find(b"<"), document.rfind(END) + len(END)
    try:
        root = ET.fromstring(document[start:stop] if len(document) < LARGEST else b"")  # noqa: S314 - the driver's own
    except ET.ParseError:
        return {"error": document[:2000].decode("utf-8", "replace").strip() or "nvidia-smi said nothing"}
    around = (document[:start] + document[stop:]).decode("utf-8", "replace").strip()
    found = {name: (root.findtext(name) or "").strip() for name in ("driver_version", "cuda_version", "attached_gpus")}
    gpus = [{"id": gpu.get("id", ""), "told": told(gpu, wanted)} for gpu in root.findall("gpu")]
    return {"error": around[:2000], **found, "gpus": gpus}


def told(gpu: ET.Element, wanted: tuple[str, ...]) -> dict[str, str]:
    """{path: text} of what is there of it."""
    found = {}
    for path in wanted:
        above = path.rpartition("/")[0]
        for element in gpu.findall(path):
            found[f"{above}/{element.tag}" if above else element.tag] = (element.text or "").strip()
    return found


if __name__ == "__main__":
    print(json.dumps(answer(*sys.argv[1:])))
