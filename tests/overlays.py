"""Other versions of SGLang, as far as their loaders go: `python -m tests.overlays [NAME ...]` installs them.

An overlay is a folder that stands before the packages of the environment `sglang-cpu` on PYTHONPATH: that version's
own wheel and the transformers it pins, 100 MB, without a second torch. Its classes can be built and their
`load_weights` be run; 0.5.21 and 0.5.22, which are near enough to the base, serve as well. What is in one stands in
`tests/fixtures/overlays/NAME.txt`, pinned by hash.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from deploy import environments
from deploy.environments import Installed

BASE = "sglang-cpu"
PINS = Path(__file__).parent / "fixtures" / "overlays"
# Before 0.5.23 the checksums of weights wait for CUDA, which this machine's torch does not have.
CHECKER, WAITS, GOES_ON = "sglang/srt/utils/weight_checker.py", "torch.cuda.synchronize()", "pass"


def names() -> list[str]:
    return sorted(path.stem for path in PINS.glob("*.txt"))


def folder(name: str) -> Path:
    """Where the overlay lies, or will lie: by what it is made of, and for which Python."""
    pins = (PINS / f"{name}.txt").read_bytes() + repr((sys.version_info[:2], WAITS, GOES_ON)).encode()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "deploy" / "overlays" / f"{name}-{hashlib.sha256(pins).hexdigest()[:12]}"


def locate(name: str) -> Installed | None:
    """The interpreter and the variables of a version; None where it, or what it stands on, is not installed.

    Of the base itself, which is a version too, they are its own.
    """
    base = environments.locate(BASE)
    if base is None or name in (BASE, f"sglang-{base.version}"):
        return base
    home = folder(name)
    path = os.pathsep.join([str(home), base.env["PYTHONPATH"]])
    return Installed(base.python, {**base.env, "PYTHONPATH": path}, name.partition("-")[2]) if home.is_dir() else None


def install(name: str) -> None:
    """Install an overlay unless it is there: whole under its name, or not at all."""
    base = environments.locate(BASE)
    if base is None:
        sys.exit(f"{name} stands on {BASE}: deploy engine install {BASE}")
    home = folder(name)
    if home.is_dir():
        print(f"{name} is there: {home}", file=sys.stderr)
        return
    half = home.with_name(f"{home.name}.{os.getpid()}")
    half.parent.mkdir(parents=True, exist_ok=True)
    words = ["install", "--quiet", "--progress-bar", "off", "--no-input", "--disable-pip-version-check"]
    pins = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", str(PINS / f"{name}.txt")]
    try:
        argv = [base.python, "-m", "pip", *words, *pins, "--target", str(half)]
        subprocess.run(argv, check=True, env=_without_ours())
        if (checker := half / CHECKER).is_file():
            checker.write_text(checker.read_text().replace(WAITS, GOES_ON))
        half.rename(home)
    except subprocess.CalledProcessError as error:
        sys.exit(f"pip could not install {name}: status {error.returncode}")
    finally:
        shutil.rmtree(half, ignore_errors=True)
    print(f"{name} installed: {home}", file=sys.stderr)


def _without_ours() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_USER", "PIP_PREFIX")}


if __name__ == "__main__":
    for wanted in sys.argv[1:] or names():
        install(wanted)
