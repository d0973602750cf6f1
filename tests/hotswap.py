"""A real SGLang whose draft is exchanged: started, asked, and met by way of a proxy that stops where it is told to."""

from __future__ import annotations

import base64
import contextlib
import http.client
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from deploy import host
from deploy.engines._sglang_swap import API
from deploy.environments import Installed
from deploy.host.header import read
from deploy.host.swap_shm import pieces, weights
from tests.commands import COMMANDS, written
from tests.launches import READY, Running
from tests.project import ROOT, TELLING, free_port, until
from tests.telling import PROMPTS

KEY = "of-the-admin"
NEVER_SENT = ("d2t", "t2d", "embed_tokens.weight")
FUSED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj"}
FUSED |= {"gate_proj": "gate_up_proj", "up_proj": "gate_up_proj"}


@dataclass
class Server:
    """A server of the telling pair's target, and the folder in which its hand-overs leave their mark."""

    running: Running
    folder: Path
    ranks: int
    programs: list[int] = field(default_factory=list)  # pids of all that handed something over to it

    @classmethod
    def of(cls, running: Running, folder: Path, ranks: int = 1) -> Server:
        """One that was started, in whose folder it is written down which process it is."""
        start = Path(f"/proc/{running.process.pid}/stat").read_text().rpartition(") ")[2].split()[19]
        (folder / "pid").write_text(f"{running.process.pid} {start} boot\n")
        return cls(running, folder, ranks)

    @property
    def port(self) -> int:
        return self.running.port

    @property
    def marker(self) -> Path:
        return self.folder / "swap.json"

    def post(self, path: str, body: Mapping[str, Any] | None = None, timeout: float = 60.0) -> tuple[int, Any]:
        """Its status and answer; TimeoutError where none comes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        try:
            connection.request("POST", path, json.dumps(body or {}), headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        with contextlib.suppress(ValueError):
            return answer.status, json.loads(text)
        return answer.status, text

    def said(self, prompt: str, tokens: int = 64, timeout: float = 120.0) -> tuple[str, int, int]:
        """The answer, its verify steps, and the drafted tokens that were accepted."""
        messages = [{"role": "user", "content": prompt}]
        body = {"model": "telling", "messages": messages, "max_tokens": tokens, "temperature": 0}
        status, told = self.post("/v1/chat/completions", {**body, "return_meta_info": True}, timeout)
        assert status == 200, told
        (choice,) = told["choices"]
        meta = choice["meta_info"]
        return choice["message"]["content"], meta["spec_verify_ct"], meta["spec_num_correct_drafts"]

    def measured(self) -> tuple[list[str], float]:
        """The answers to all prompts, and the accept length over them."""
        told = [self.said(prompt) for prompt in PROMPTS]
        return [text for text, _, _ in told], 1 + sum(one[2] for one in told) / sum(one[1] for one in told)

    def paused(self) -> bool:
        """Whether a question gets no answer."""
        asked = {"text": "tell me", "sampling_params": {"max_new_tokens": 2, "temperature": 0}}
        try:
            assert self.post("/generate", asked, timeout=1.0)[0] == 200
        except TimeoutError:
            return True
        return False

    def checksums(self) -> dict[str, str]:
        """Those of the draft that is loaded, asked for as a run does after a start."""
        told = run("checksums", {"url": self.url(), "keys": [KEY], "ranks": self.ranks, "api": API.to_json()})
        assert told["checksums"], told
        found: dict[str, str] = told["checksums"]
        return found

    def url(self, port: int | None = None) -> str:
        return f"http://127.0.0.1:{port or self.port}"

    def request(self, draft: Path, before: Path, **more: Any) -> dict[str, Any]:
        """What is asked of the program, with a lock that is ours."""
        lock = self.folder / "lock"
        lock.write_text("ours\n{}\n")
        return {
            "lock": str(lock), "token": "ours", "server": str(self.folder), "new": "run-2", "url": self.url(),
            "keys": [KEY], "ranks": self.ranks, "draft": str(draft), "before": str(before), "sent": sent(draft),
            "api": API.to_json(), "record": str(self.folder / "weights.json"),
            "links": [["runs/run-2", str(self.folder / "current")]], "expected": None, "loaded": None, **more,
        }  # fmt: skip

    def swap(self, draft: Path, before: Path, **more: Any) -> dict[str, Any]:
        return self.swapped(self.request(draft, before, **more))

    def swapped(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What the program says at its end."""
        with self.swapping(request) as program:
            return ended(program)

    @contextlib.contextmanager
    def swapping(self, request: Mapping[str, Any]) -> Iterator[subprocess.Popen[str]]:
        """The program while it runs; it is killed at the end if it still does."""
        with started(request) as program:
            self.programs.append(program.pid)
            yield program

    def left_in_memory(self) -> list[str]:
        """Shared memory of the programs that is there now."""
        names = [path.name for path in Path("/dev/shm").iterdir()]
        return [name for name in names if name.startswith(tuple(f"torch_{pid}_" for pid in self.programs))]

    def load(self, draft: Path) -> None:
        """A draft, whatever is loaded, and without any proof."""
        assert self.post("/begin_weight_update", {"selector": "draft"})[0] == 200
        for piece in pieces(weights(str(draft), sent(draft)), 1 << 30):
            with piece.handed(f"torch_{os.getpid()}_{self.port}_0") as pickled:
                given = {"serialized_named_tensors": [base64.b64encode(pickled).decode()] * self.ranks}
                asked = {**given, "selector": "draft", "flush_cache": True}
                assert self.post("/update_weights_from_tensor", asked)[0] == 200
        assert self.post("/end_weight_update")[0] == 200

    def mend(self) -> None:
        """Have it go on after a hand-over that broke off; what is loaded may be anything."""
        self.post("/end_weight_update")
        assert self.post("/continue_generation")[0] == 200
        self.marker.unlink(missing_ok=True)


def sent(draft: Path) -> dict[str, str]:
    """{tensor: parameter} of what of a draft is handed over, by the names of LlamaForCausalLMEagle3 in 0.5.23."""
    found = {}
    for name in read(draft / "model.safetensors").tensors:
        whole = ".".join(FUSED.get(part, part) for part in name.replace("midlayer.", "layers.0.").split("."))
        found[name] = whole if whole.startswith("lm_head.") else f"model.{whole}"
    return {name: parameter for name, parameter in found.items() if name not in NEVER_SENT}


def run(name: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """A host program as the host runs it, to its end."""
    done = subprocess.run(argv(name), input=json.dumps(request), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def argv(name: str) -> list[str]:
    return [sys.executable, "-I", "-c", host.source(name)]


@contextlib.contextmanager
def started(request: Mapping[str, Any]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(argv("swap"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    try:
        process.stdin.write(json.dumps(request))
        process.stdin.close()
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()


def ended(process: subprocess.Popen[str], seconds: float = 60.0) -> dict[str, Any]:
    """What it printed at its end."""
    assert process.wait(seconds) == 0
    assert process.stdout
    found: dict[str, Any] = json.loads(process.stdout.read())
    return found


@contextlib.contextmanager
def serving(installed: Installed, folder: Path, draft: Path, ranks: int = 1) -> Iterator[Server]:
    """The telling target with a draft, and a key for what an administrator may do; nothing is left of it."""
    port = free_port()
    profile = yaml.safe_load((ROOT / "profiles/local-sglang.yaml").read_text())
    words, flags = COMMANDS["sglang"](TELLING / "target", draft)
    flags |= {"served-model-name": "telling", "host": "127.0.0.1", "port": port, **profile["args"]}
    flags |= {"admin-api-key": KEY, **({"tp-size": ranks} if ranks > 1 else {})}
    env = {**os.environ, **installed.env, "SPT_NOENV": "1", "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0"}
    env |= {name: str(value) for name, value in profile["env"].items()}
    env |= {"SGLANG_CPU_OMP_THREADS_BIND": "|".join(map(str, range(ranks)))} if ranks > 1 else {}
    env |= {"TMPDIR": str(folder)}  # the manager of shared memory that torch starts leaves a folder there
    folder.mkdir(exist_ok=True)
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [installed.python, "-m", *words, *written(flags, port)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd="/", env=env,
        )  # fmt: skip
    made = Server.of(Running(process, port), folder, ranks)
    try:
        ready = READY["sglang"].encode()
        until(lambda: ready in log.read_bytes() or process.poll() is not None, 400, "its ready line")
        assert process.poll() is None, log.read_text()[-3000:]
        yield made
    finally:
        made.running.end()


@dataclass
class Stop:
    """Where a proxy stops: at the `nth` question of a path, before the server hears of it or when it has `obeyed`; what
    becomes of it then: `go` on, no answer at all (`drop`), or this status instead.
    """

    path: str
    nth: int = 1
    obeyed: bool = False
    becomes: str = "go"
    lasts: bool = False  # and at all later ones
    there: threading.Event = field(default_factory=threading.Event)
    free: threading.Event = field(default_factory=threading.Event)
    seen: int = 0

    def meets(self, path: str) -> bool:
        if path != self.path:
            return False
        self.seen += 1
        return self.seen == self.nth or (self.lasts and self.seen > self.nth)


class Proxy(http.server.ThreadingHTTPServer):
    """Before a server; with `holds` it waits at its stop until that is free."""

    daemon_threads = False

    def __init__(self, server: Server, stop: Stop, *, holds: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.port, self.stop, self.holds = server.port, stop, holds


class _Passing(http.server.BaseHTTPRequestHandler):
    server: Proxy

    def do_POST(self) -> None:
        stop = self.server.stop
        body = self.rfile.read(int(self.headers["content-length"]))
        meets = stop.meets(self.path)
        if meets and not stop.obeyed and not self._goes(stop):
            return
        told = self._asked(body)
        if told and (not meets or not stop.obeyed or self._goes(stop)):
            self._answer(*told)

    def _asked(self, body: bytes) -> tuple[int, bytes] | None:
        """What the server answers; None where it died."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("POST", self.path, body, dict(self.headers))
            answer = connection.getresponse()
            return answer.status, answer.read()
        return None

    def _goes(self, stop: Stop) -> bool:
        stop.there.set()
        if self.server.holds or stop.becomes == "hang":
            assert stop.free.wait(60)
        if stop.becomes.isdigit():
            self._answer(int(stop.becomes), b'{"success": false, "message": "said by the test"}')
        return stop.becomes == "go"

    def _answer(self, status: int, text: bytes) -> None:
        with contextlib.suppress(OSError):  # who asked may be dead
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def between(server: Server, stop: Stop, *, holds: bool = False) -> Iterator[int]:
    """The port of a proxy before the server."""
    proxy = Proxy(server, stop, holds=holds)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield proxy.server_port
    finally:
        stop.free.set()
        proxy.shutdown()
        thread.join()
        proxy.server_close()
