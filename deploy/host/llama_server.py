"""Run llama.cpp's own server, as the package `xllamacpp` carries it, under llama-server's own flags.

A flag that is not in FLAGS sets the attribute of that name on llama.cpp's parameters: `--n-batch 512`, `--no-warmup`.
llama.cpp's log goes to stderr. Exit status: 0 after SIGTERM or SIGINT, 1 where the server cannot start, 2 for a flag or
a file that is wrong. A signal while the models load ends the process at once: llama.cpp loads inside one call.
"""

from __future__ import annotations

import difflib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLAGS = {  # llama-server's spellings -> the attribute, as a path from CommonParams
    "--alias -a": "model_alias",
    "--api-key": "api_keys",
    "--batch-size -b": "n_batch",
    "--ctx-size -c": "n_ctx",
    "--draft-max --draft --draft-n --spec-draft-n-max": "speculative.draft.n_max",
    "--draft-min --draft-n-min --spec-draft-n-min": "speculative.draft.n_min",
    "--draft-p-min --spec-draft-p-min": "speculative.draft.p_min",
    "--embeddings --embedding": "embedding",
    "--gpu-layers --n-gpu-layers -ngl": "n_gpu_layers",
    "--gpu-layers-draft --n-gpu-layers-draft -ngld": "speculative.draft.n_gpu_layers",
    "--host": "hostnames",
    "--jinja": "use_jinja",
    "--log-verbosity --verbosity -lv": "verbosity",
    "--metrics": "endpoint_metrics",
    "--model -m": "model.path",
    "--model-draft --spec-draft-model -md": "speculative.draft.mparams.path",
    "--parallel -np": "n_parallel",
    "--port": "port",
    "--predict --n-predict -n": "n_predict",
    "--props": "endpoint_props",
    "--seed -s": "sampling.seed",
    "--slots": "endpoint_slots",
    "--spec-type": "speculative.types",
    "--temp --temperature": "sampling.temp",
    "--threads -t": "cpuparams.n_threads",
    "--threads-batch -tb": "cpuparams_batch.n_threads",
    "--threads-http": "n_threads_http",
    "--ubatch-size -ub": "n_ubatch",
}
KNOWN = {word: path for words, path in FLAGS.items() for word in words.split()}
KEY_FILE = "--api-key-file"
SETTABLE = (bool, int, float, str, list, set)
TRUTH = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}


class Wrong(Exception):
    """A flag or a path that is wrong: the message is for the user."""


def main(argv: list[str]) -> int:
    try:
        import xllamacpp
    except ImportError as error:
        return fail(f"{sys.executable} cannot import xllamacpp ({error}): pip install xllamacpp", 1)
    params = xllamacpp.CommonParams()
    params.port = 8080  # llama-server's default; xllamacpp would let the kernel choose
    try:
        configure(params, argv, xllamacpp.common_speculative_type)
        resolve_files(params)
    except Wrong as error:
        return fail(str(error), 2)
    return serve(xllamacpp.Server, params)


def serve(server_type: Callable[[Any], Any], params: Any) -> int:
    """Load, say where it listens, and wait for a signal."""
    draft = params.speculative.draft.mparams.path
    try:
        server = server_type(params)
    except RuntimeError as error:
        told = f" with the draft {draft!r}" if draft else ""
        return fail(f"cannot serve {params.model.path!r}{told}; see llama.cpp's log ({error})", 1)
    print(f"listening on {server.listening_address}", flush=True)
    print(f"stopped by {wait_for_signal()}", flush=True)
    sys.stderr.flush()
    os._exit(0)  # the destructor would wait for running requests


def wait_for_signal() -> str:
    """Sleep until SIGTERM or SIGINT came, to whichever thread: llama.cpp's threads do not block them."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return signal.Signals(os.read(reader, 1)[0]).name


def configure(params: Any, argv: list[str], spec_types: Any) -> None:
    """Set what the words ask for."""
    if os.environ.get("LLAMA_API_KEY"):
        params.api_keys = [os.environ["LLAMA_API_KEY"]]
    words = list(reversed(argv))
    while words:
        flag, separator, inline = words.pop().partition("=")
        if flag == KEY_FILE:
            params.api_keys = read_keys(inline if separator else next_word(flag, words))
            continue
        owner, name, negated = find(params, flag)
        current = getattr(owner, name)
        if isinstance(current, bool):
            given = inline if separator else words.pop() if words and words[-1].lower() in TRUTH else "true"
            setattr(owner, name, typed(flag, given, current) is not negated)
            continue
        value = inline if separator else next_word(flag, words)
        setattr(owner, name, speculative(spec_types, value) if name == "types" else typed(flag, value, current))


def find(params: Any, flag: str) -> tuple[Any, str, bool]:
    """The object and the attribute behind a flag, and whether the flag says "no"."""
    plain = attribute(params, flag)
    if plain:
        return (*plain, False)
    opposite = attribute(params, "--" + flag[5:]) if flag.startswith("--no-") else None
    if opposite and isinstance(getattr(*opposite), bool):
        return (*opposite, True)
    own = ["--" + name.replace("_", "-") for name in dir(params) if attribute(params, "--" + name)]
    near = difflib.get_close_matches(flag, [*KNOWN, KEY_FILE, *own], n=1, cutoff=0.4)
    raise Wrong(f"there is no flag {flag!r}" + (f"; did you mean {near[0]}?" if near else ""))


def attribute(params: Any, flag: str) -> tuple[Any, str] | None:
    """The object and the attribute that a flag sets, if it is one that a word can set."""
    path = KNOWN.get(flag) or (flag[2:].replace("-", "_") if flag.startswith("--") else "")
    *owners, name = path.split(".")
    for owner in owners:
        params = getattr(params, owner)
    settable = name and not name.startswith("_") and isinstance(getattr(params, name, None), SETTABLE)
    return (params, name) if settable else None


def typed(flag: str, value: str, current: Any) -> Any:
    """The word as the type that the attribute has now."""
    if isinstance(current, bool):
        if value.lower() not in TRUTH:
            raise Wrong(f"{flag} takes true or false, not {value!r}")
        return TRUTH[value.lower()]
    if isinstance(current, (list, set)):
        kind = type(next(iter(current))) if current else str
        return type(current)(convert(flag, part, kind) for part in value.split(","))
    return convert(flag, value, type(current))


def convert(flag: str, value: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise Wrong(f"{flag} takes {getattr(kind, '__name__', kind)}, not {value!r}") from None


def speculative(spec_types: Any, value: str) -> list[Any]:
    """`draft-eagle3` or `draft-simple,ngram-cache` as llama.cpp's numbers."""
    prefix = "COMMON_SPECULATIVE_TYPE_"
    names: dict[str, Any] = {
        member.name[len(prefix) :].lower().replace("_", "-"): member
        for member in spec_types
        if not member.name.endswith("_COUNT")
    }
    for word in value.split(","):
        if word not in names:
            raise Wrong(f"there is no --spec-type {word!r}; known: {', '.join(names)}")
    return [names[word] for word in value.split(",")]


def next_word(flag: str, words: list[str]) -> str:
    if not words:
        raise Wrong(f"{flag} needs a value")
    return words.pop()


def read_keys(path: str) -> list[str]:
    """One key a line."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise Wrong(f"{KEY_FILE}: {error}") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def resolve_files(params: Any) -> None:
    """Let a folder with one .gguf stand for that file; a draft without --spec-type is a draft model of its own."""
    if not params.model.path:
        raise Wrong("--model is missing")
    params.model.path = one_gguf("--model", params.model.path)
    draft = params.speculative.draft.mparams
    if draft.path:
        draft.path = one_gguf("--model-draft", draft.path)


def one_gguf(flag: str, given: str) -> str:
    path = Path(given)
    if not path.is_dir():
        if not path.is_file():
            raise Wrong(f"{flag}: there is no file {given!r}")
        return given
    found = sorted(path.glob("*.gguf"))
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise Wrong(f"{flag}: a folder must hold exactly one .gguf file; {given!r} holds {names}")
    return str(found[0])


def fail(message: str, status: int) -> int:
    print(f"llama_server: {message}", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
