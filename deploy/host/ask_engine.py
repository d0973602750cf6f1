"""Ask an engine in its own interpreter, and remember the answer: JSON in on stdin, JSON out.

`python3 -I -c SOURCE`, standard library only, Python 3.8 and later. It starts a program whose text it is given
(`loadcheck` or `flags`) in the engine's interpreter:

    {"python": "/opt/sglang/bin/python", "env": {...}, "engine": "sglang", "program": TEXT, "question": {...},
     "cache": "~/.deploy/cache" or "", "timeout": 120}

The answer is that of the program, with "cached" set where it was remembered. It is kept under the digest of the
engine's version and of the sources that decide it, of the program and of the question. Where anything is kept the
engine is first asked for the former (a tenth of a second), so nothing is remembered wrongly and nothing needs to be
forgotten; the oldest of many goes. Whatever fails, fails as {"error": ..., "unsupported": true} with exit status 0, and
is not kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

KEPT = 64  # answers, of 10 to 100 kB each
QUICK = 30.0  # seconds for the fingerprint: a disk may be asleep


def main() -> None:
    print(json.dumps(ask(json.load(sys.stdin))))


def ask(job: dict[str, Any]) -> dict[str, Any]:
    """The whole of it. Never raises for what an interpreter, an engine or a disk may do."""
    program = shutil.which(os.path.expanduser(job["python"]))
    if program is None:
        return _failed("{} does not exist, or cannot be executed".format(job["python"]))
    cache = Path(os.path.expanduser(job["cache"])) if job["cache"] else None
    question = json.dumps(job["question"], sort_keys=True)
    if cache and any(cache.glob("*.json")):
        told = _run(program, job, "fingerprint", b"", QUICK)
        if told.get("error"):
            return told
        kept = _recall(cache, _key(told, program, job, question))
        if kept is not None:
            return {**kept, "cached": True}
    answer = _run(program, job, "answer", question.encode(), job["timeout"])
    if not answer.get("unsupported"):
        _keep(cache, _key(answer, program, job, question), answer)
    return answer


def _key(told: dict[str, Any], program: str, job: dict[str, Any], question: str) -> str:
    """By what an engine says of itself, which stands in its answer as well."""
    same = {name: told[name] for name in ("engine", "version", "sources") if name in told}
    identity = json.dumps([same, program, job["env"], job["program"], question], sort_keys=True)
    return hashlib.sha256(identity.encode()).hexdigest()


def _run(program: str, job: dict[str, Any], what: str, stdin: bytes, timeout: float) -> dict[str, Any]:
    """Run the program; what it printed on its last line. Its children end with it."""
    argv = [program, "-c", job["program"], job["engine"], what]
    pipe, environment = subprocess.PIPE, {**os.environ, **job["env"]}
    try:
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True)
    except (OSError, ValueError) as error:  # no such interpreter behind its #!, wrong machine, a NUL in a variable
        return _failed(f"{program}: {error}")
    with process:
        try:
            out, said = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            return _failed(f"{program} gave no answer within {timeout:g} s")
        finally:
            _end(process)
    answer = out.decode("utf-8", "replace").strip().rpartition("\n")[2]
    try:
        return _checked(json.loads(answer))
    except (ValueError, RecursionError):
        words = (said or out).decode("utf-8", "replace").strip()
        return _failed(f"{program} ended with status {process.returncode}: {words[-1000:]}")


def _end(process: Any) -> None:
    """The whole group: nobody else is in it, since the session is its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _checked(answer: Any) -> dict[str, Any]:
    """ValueError where it is nothing that a program of ours would say."""
    if not isinstance(answer, dict) or not isinstance(answer.get("version"), str):
        raise ValueError("no answer of ours")  # noqa: TRY004 - what json.loads raises too
    lists = all(isinstance(answer.get(name, []), list) for name in ("placed", "refused", "unfilled"))
    if not lists or not isinstance(answer.get("parameters", {}), dict):
        raise ValueError("an answer of another shape")
    return answer


def _failed(words: str) -> dict[str, Any]:
    return {"version": "", "error": words, "unsupported": True}


def _recall(cache: Path | None, key: str) -> dict[str, Any] | None:
    """The answer that is kept under this key; None for anything else. Another user's files count for nothing."""
    if cache is None:
        return None
    try:
        path = cache / (key + ".json")
        if path.stat().st_uid != os.getuid():
            return None
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["key"] != key or kept["sha256"] != _digest(kept["answer"]):
            return None
        os.utime(path)
        return _checked(kept["answer"])
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return None


def _keep(cache: Path | None, key: str, answer: dict[str, Any]) -> None:
    """Whole or not at all. Where nothing can be written nothing is kept: the next time takes as long again."""
    if cache is None:
        return
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=str(cache), suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"key": key, "sha256": _digest(answer), "answer": answer}, file)
        os.replace(temporary, str(cache / (key + ".json")))
        found = sorted(cache.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in [*found[:-KEPT], *_left_over(cache)]:
            path.unlink()
    except OSError:
        return


def _left_over(cache: Path) -> Any:
    """Temporary files of writers that died; a living one takes no minute."""
    newest = max((path.stat().st_mtime for path in cache.iterdir()), default=0.0)
    return [path for path in cache.glob("*.tmp") if path.stat().st_mtime < newest - 60]


def _digest(answer: Any) -> str:
    return hashlib.sha256(json.dumps(answer, sort_keys=True).encode()).hexdigest()


if __name__ == "__main__":
    main()
