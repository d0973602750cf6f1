"""The flags that an installed engine takes, as it says itself: the parser that its server is started through.

Runs in the ENGINE's interpreter (`PYTHON -c SOURCE ENGINE fingerprint|answer`), without a GPU, a network or a server;
ENGINE is sglang, vllm, xllamacpp, or the path of a binary that prints its flags as llama-server does. On the last line
of stdout stands

    {"engine": "sglang", "version": "0.5.23", "sources": sha256, "options": [OPTION], "abbreviations": true,
     "underscores": false, "dotted": false, "inline": true, "words": 0, "error": "", "unsupported": false,
     "seconds": 5.2}

where an OPTION is {"names": ["--tp-size", ...], "values": "0" "1" "?" "*" "+" or a number, "kind": int float size json
truth or "" (any text), "also": [words that it takes beside], "choices": [...] or null, "deprecated": the engine's words
or "", "refused": why it does not start with it or "", "repeats": whether all of several count}. `words` is how many
words that belong to no flag it takes.
"""

# Runs in the engine's own interpreter, which may be any: standard library, Python 3.8 or newer, and the engine.

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from typing import Any

from deploy.host.installed import HIDE, fingerprint
from deploy.host.llama_server import FLAGS, KEY_FILE, attribute

# What defines the flags, below the package's folder.
SOURCES = {
    "sglang": (
        "version.py", "srt/server_args.py", "srt/arg_groups/**/*.py", "srt/environ.py", "srt/utils/*.py",
        "srt/function_call/*.py", "srt/parser/*.py", "srt/speculative/spec_info.py", "srt/configs/*.py",
    ),
    "vllm": (
        "_version.py", "engine/arg_utils.py", "config/*.py", "utils/argparse_utils.py", "entrypoints/**/cli_args.py",
        "platforms/*.py", "tool_parsers/__init__.py", "reasoning/__init__.py",
    ),
    "xllamacpp": ("__init__.py", "_version.py", "*.pyi"),
}  # fmt: skip
VLLM_PARSERS = ("vllm.utils.argparse_utils", "vllm.utils")
VLLM_FLAGS = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
ARGPARSE = {"abbreviations": True, "underscores": False, "dotted": False, "inline": True}
OWN = {"abbreviations": False, "underscores": True, "dotted": False, "inline": False, "words": 0}

# What a flag's own converter takes of these says what kind of value it wants.
SAMPLES = ("7", "7.5", "7k", '{"a": 7}', "a word")
KINDS = {"10000": "int", "11000": "float", "10100": "size", "11010": "json"}
ALSO = ("auto", "None", "none", "null")
DEPRECATED = re.compile(r"(?is)\W*(?:note\W+)?(?:-[-\w]+ is )?(?:deprecated|removed)\b|.*\(deprecated\b[^)]*\)\s*$")
BY_HELP = re.compile(r"(-[^\s,]+(?:, +-[^\s,]+)*)(?: (\S.*?))?(?: {2,}(.*))?")  # common/arg.cpp, common_arg::to_string
WORDS = 300  # characters of what an engine says of one flag
PATIENCE = 60.0  # seconds for a program's --help, which may look for GPUs first


def tell() -> None:
    engine, what = sys.argv[1:3]
    sys.path[:] = [entry for entry in sys.path if entry]  # the current folder must not count
    answer_to = os.dup(1)
    os.dup2(2, 1)  # engines print while they are imported
    told = fingerprint(engine, SOURCES[engine], ()) if engine in SOURCES else of_file(engine)
    if what == "answer":
        told = answer(engine, told)
    with os.fdopen(answer_to, "w", encoding="utf-8") as out:
        out.write("\n" + json.dumps(told) + "\n")
    sys.stderr.flush()
    os._exit(0)  # an engine's threads and finalizers take seconds


def of_file(path: str) -> dict[str, Any]:
    """A binary is the one it was as long as it is the same file."""
    told = {"engine": os.path.basename(path), "version": "", "sources": ""}
    try:
        real = os.path.realpath(where(path))
        found = os.stat(real)
    except OSError as error:
        return {**told, "error": f"{path}: {error.strerror}", "unsupported": True}
    same = repr((real, found.st_size, found.st_mtime_ns, found.st_ino))
    return {**told, "sources": hashlib.sha256(same.encode()).hexdigest()}


def where(path: str) -> str:
    return shutil.which(os.path.expanduser(path)) or path


def answer(engine: str, told: dict[str, Any]) -> dict[str, Any]:
    """The options. Never raises: what cannot be told is told as that."""
    began, error, found = time.monotonic(), str(told.get("error", "")), {}
    if not error:
        try:
            os.environ.update(HIDE)
            found = ENGINES.get(engine, by_help)(engine)
        except BaseException as raised:  # noqa: BLE001 - SystemExit too: whatever an unknown version may do
            said = f"{type(raised).__name__}: {raised}"[:WORDS]
            error = "{} {} does not tell its flags here: {}".format(engine, told["version"], said)
        if not error and not found["options"]:
            error = f"{engine} tells no flags in a way that is known"
    seconds = round(time.monotonic() - began, 2)
    return {**told, **found, "error": error, "unsupported": bool(error), "seconds": seconds}


def sglang(_: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    return {**ARGPARSE, **options(parser)}


def vllm(_: str) -> dict[str, Any]:
    parser = first("FlexibleArgumentParser", VLLM_PARSERS)(prog="vllm serve")
    told = options(first("make_arg_parser", VLLM_FLAGS)(parser))
    for row in told["options"]:
        if "--optimization-level" in row["names"]:
            row["names"].append("-O")  # which its parser writes out before argparse sees it
    return {**ARGPARSE, "underscores": True, "dotted": True, **told}


def first(name: str, modules: Any) -> Any:
    """What the first of the modules that has it calls so: it moves from version to version."""
    for module in modules:
        try:
            found = getattr(importlib.import_module(module), name, None)
        except ModuleNotFoundError:
            continue
        if found:
            return found
    raise ImportError(name)


def options(parser: Any) -> dict[str, Any]:
    """What an argparse parser takes."""
    told = getattr(parser, "_deprecated", ())  # vLLM's own, below Python 3.13
    actions = parser._actions  # noqa: SLF001 - argparse has no other way to ask
    found = [option(action, action in told) for action in actions if action.option_strings]
    alone = [action.nargs for action in actions if not action.option_strings]
    return {"options": found, "words": sum(number if isinstance(number, int) else 1 for number in alone)}


def option(action: Any, told: bool) -> dict[str, Any]:
    help_ = action.help if isinstance(action.help, str) and action.help != argparse.SUPPRESS else ""
    old = told or getattr(action, "deprecated", False) or type(action).__name__.startswith("Deprecated")
    new = getattr(action, "new_flag", None)
    words = f"use {new}" if new else help_ if old or DEPRECATED.match(help_) else ""
    ends = type(action).__name__ in ("_HelpAction", "_VersionAction")
    refused = getattr(action, "error_message", None) or ("the program prints it and ends" if ends else "")
    kind, also = kind_of(action.type)
    return {
        "names": list(action.option_strings),
        "values": {None: "1", argparse.REMAINDER: "*"}.get(action.nargs, str(action.nargs)),
        "kind": kind,
        "also": also,
        "choices": None if action.choices is None else [str(choice) for choice in action.choices],
        "deprecated": " ".join((words or (old and "deprecated") or "").split())[:WORDS],
        "refused": " ".join(refused.split())[:WORDS],
        "repeats": type(action).__name__ in ("_AppendAction", "_ExtendAction", "_CountAction"),
    }


def kind_of(convert: Any) -> tuple[str, list[str]]:
    if not callable(convert) or convert is str:
        return "", []
    kind = KINDS.get("".join("01"[takes(convert, sample)] for sample in SAMPLES), "")
    return kind, [word for word in ALSO if kind and takes(convert, word)]


def takes(convert: Any, text: str) -> bool:
    try:
        convert(text)
    except Exception:  # noqa: BLE001 - a converter of anybody's: whatever it raises, the value is none
        return False
    return True


def xllamacpp(_: str) -> dict[str, Any]:
    """Of our launcher of it (`llama_server.py`): its table, and every attribute that a word can set."""
    params = importlib.import_module("xllamacpp").CommonParams()
    known = [words.split() for words in FLAGS]
    own = [["--" + name.replace("_", "-")] for name in dir(params)]
    found = [plain(names, attribute(params, names[0])) for names in [*known, *own] if attribute(params, names[0])]
    return {**OWN, "inline": True, "options": [*found, plain([KEY_FILE], None)]}


def plain(names: list[str], place: Any) -> dict[str, Any]:
    current = getattr(*place) if place else ""
    truth = isinstance(current, bool)
    kind = "truth" if truth else {int: "int", float: "float"}.get(type(current), "")
    negated = ["--no-" + name[2:] for name in names if truth and name.startswith("--")]
    return described([*names, *negated], "?" if truth else "1", kind, None)


def by_help(binary: str) -> dict[str, Any]:
    argv, quiet = [where(binary), "--help"], subprocess.DEVNULL
    done = subprocess.run(argv, stdin=quiet, capture_output=True, check=False, timeout=PATIENCE)
    text = (done.stdout or done.stderr).decode("utf-8", "replace")
    return {**OWN, "options": read_help(text) if re.search(r"^-{3,} .*params", text, re.MULTILINE) else []}


def read_help(text: str) -> list[dict[str, Any]]:
    """What llama-server prints: names at the left edge, a hint for each value, and behind two spaces what it is for."""
    found: list[tuple[dict[str, Any], list[str]]] = []
    for line in text.splitlines():
        row = BY_HELP.fullmatch(line.strip()) if re.match(r" {0,8}--?\w", line) else None
        if row:
            hint = row[2] or ""
            choices = re.fullmatch(r"\{([\w,.-]+)\}", hint)
            count = len(re.findall(r"\[[^\]]*\]|<[^>]*>|\{[^}]*\}|\S+", hint))
            names = re.split(r", +", row[1])
            told = described(names, str(count), "", choices[1].split(",") if choices else None)
            found.append(({**told, "repeats": True}, [row[3] or ""]))  # which repeat it does not tell
        elif found and line.startswith("  "):
            found[-1][1].append(line.strip())
    return [{**told, **aged(" ".join(words).strip()[:WORDS])} for told, words in found]


def aged(words: str) -> dict[str, str]:
    """A flag that is gone stays in the help, and is refused (arg_removed in common/arg.cpp)."""
    if "has been removed" in words:
        return {"refused": words}
    return {"deprecated": words} if re.search(r"(?i)\bdeprecated\b", words) else {}


def described(names: list[str], values: str, kind: str, choices: list[str] | None) -> dict[str, Any]:
    told = {"names": names, "values": values, "kind": kind, "also": [], "choices": choices, "deprecated": ""}
    return {**told, "refused": "", "repeats": False}


ENGINES = {"sglang": sglang, "vllm": vllm, "xllamacpp": xllamacpp}


if __name__ == "__main__":
    tell()
