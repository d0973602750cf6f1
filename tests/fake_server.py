#!/usr/bin/env python3
"""A server that looks like SGLang from outside, and misbehaves on demand: a stand-in for tests.

    fake_server.py --model-path M --port P [--fake NAME=VALUE]... [any other flag: ignored]

Misbehaviour is named by the fields of `Fake` below: by `--fake NAME=VALUE` (the value as JSON, else a plain word), or
in the environment as one JSON object, FAKE='{"silent_at": "graphs"}'. A name that is no field ends it with status 2.
It prints SGLang's own log lines in its order of phases (PHASES), opens its port only after "loading" as SGLang does,
and speaks as much of its HTTP as the tool needs. As an engine's `python` it also plays the interpreter: it takes
`-m sglang.launch_server ...`, and with `-c CODE` runs the code with a distribution `sglang` installed, which has flags.
It reads the draft that it is given, and with a `version` from 0.5.21 on takes another one while it serves: what is
loaded, and how that shows, is told by fake_sglang.draft and fake_sglang.weights. It plays 0.5.20 where nothing is said.
Whatever happens, it and all its children end after `lifetime` seconds. Standard library only.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import http.server
import json
import math
import os
import signal
import sys
import threading
import time
from pathlib import Path

from fake_sglang import flags, gate, interpreter, weights  # type: ignore[import-not-found]
from fake_sglang.errors import ERRORS, FITTING  # type: ignore[import-not-found]

PHASES = (
    "args",  # its arguments in clear, secrets too
    "rendezvous",
    "weights",
    "draft",
    "kv",
    "graphs",
    "draft_graphs",
    "summary",
    "http",  # binds its port; if it is taken, that shows here and not before
    "warmup",  # port open, /health 503
)
HEALTH_SECONDS = 20  # SGLANG_HEALTH_CHECK_TIMEOUT: so long does /health try to generate


@dataclasses.dataclass(frozen=True)
class Fake:
    """What it does, and what it does wrong."""

    # starting
    load_seconds: float = 0.0  # spread evenly over the phases
    phase_seconds: dict[str, float] = dataclasses.field(default_factory=dict)  # {"graphs": 2}: its own time instead
    silent_at: str = ""  # begins that phase, then says nothing ("warmup": port open, never ready)
    silent_seconds: float = 0.0  # so long; 0: for ever
    meanwhile: str = ""  # and does that: spin (its CPU), read, grow (its memory), compile, repeat (the same line)
    loses: str = ""  # in that phase the last of its `children` is killed, and it lives on
    die_at: str = ""  # dies in that phase; "serving" is after the ready line
    die_after: float = 0.0  # seconds into that phase
    die_exit: int = -1  # with this status; -1: of a signal, as SGLang, which kills its own tree
    die_signal: str = "KILL"
    die_error: str = ""  # last words, a key of ERRORS; "" those that fit the phase, "none" not a word
    lingers: bool = False  # lives on after its last words
    log_bytes: int = 0  # so much noise in the log before the weights
    ranks: int = 0  # schedulers that log; 0: as many as --tp-size says
    # processes and GPUs
    ignore_term: bool = False  # it and its children
    children: int = 0  # schedulers in its own session that die with it, as SGLang's
    stragglers: int = 0  # the same, but they survive it
    orphans: int = 0  # survive it in a session of their own, with pid 1 as parent
    gpu_mib: int = 40000  # held on the GPU of each rank from the weights on, where FAKE_GPU_STATE is set
    lifetime: float = 600.0  # seconds after which nothing of it lives, whatever happened
    stamps: str = ""  # a folder in which ready, dead and silent get the time (seconds since the epoch) when it was so
    # a folder in which NAME.at holds "phase kv", "GET /health" or "POST /begin_weight_update done", which is before the
    # answer: whoever comes there waits once
    breakpoints: str = ""
    # serving
    version: str = "0.5.20"  # the last whose draft cannot be swapped; "": sglang is not installed
    model: str = ""  # answers for this model instead of the one it was started with
    answer: str = ""  # the text of every answer
    reasoning: str = ""  # "only": the answer stands in reasoning_content; "both": thoughts there, the answer in content
    accept_length: float = 0.0  # 0: 3.0 with a draft, no figures without one
    wanes: float = 0.0  # by so much less is the accept length of each generation than that of the one before
    acceptance: bool = True  # false: no spec_* figures in any answer
    unready_seconds: float = 0.0  # after the ready line: 503 on health, readiness and generation
    codes: dict[str, int] = dataclasses.field(default_factory=dict)  # {"/health": 500}: this status on that path
    slow_seconds: float = 0.0  # before each answer
    tokens_per_second: float = 0.0  # 0: at once
    hang: str = ""  # paths that begin so are never answered
    drop: str = ""  # paths that begin so: the connection is closed without an answer
    faults: dict[str, str] | str = dataclasses.field(default_factory=dict)  # of weights.py, by path
    dead_backend: bool = False  # /health says 200, generation hangs, /health_generate says 503
    exits_after: int = 0  # dies (die_*) after so many generations
    api_key: str = ""  # beside --api-key and the api-key of --config

    @staticmethod
    def of(pairs):
        """From $FAKE and NAME=VALUE pairs; the pairs win."""
        wanted = json.loads(os.environ.get("FAKE") or "{}")
        for name, _, value in (pair.partition("=") for pair in pairs):
            try:
                wanted[name] = json.loads(value)
            except ValueError:
                wanted[name] = value
        known = {field.name for field in dataclasses.fields(Fake)}
        if not known.issuperset(wanted):
            sys.exit(f"fake_server: no such misbehaviour: {', '.join(sorted(set(wanted) - known))}")
        return Fake(**wanted)


class Log:
    """SGLang's log: `[time TP0] text` on stderr, the rank only where there are several."""

    def __init__(self, ranks):
        self.ranks = ranks

    def say(self, text, rank=None):
        tag = "" if rank is None or self.ranks == 1 else f" TP{rank}"
        self.raw(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}{tag}] {text}\n")

    def every(self, text):
        for rank in range(self.ranks):
            self.say(text, rank)

    @staticmethod
    def raw(text):
        sys.stderr.write(text)
        sys.stderr.flush()


class Server:
    """One life of the server: phases, then serving, then some end."""

    def __init__(self, options, fake):
        self.options, self.fake = options, fake
        self.log = Log(fake.ranks or options.tp_size)
        self.state = threading.Lock()
        self.generations = self.verified = self.tokens = 0
        self.ready_at = math.inf  # monotonic; math.inf: still starting
        self.born = time.monotonic()
        self.kept = []  # pids of what it has started
        self.gate = gate.Gate()
        self.weights = weights.Weights(self)
        self.averaged = (0, 0)  # tokens and verified, up to which its average no longer counts
        self.model = fake.model or options.served_model_name or options.model_path

    # ---- starting

    def live(self):
        threading.Thread(target=self._expire, daemon=True).start()
        for phase in PHASES:
            if phase == "weights":
                self._occupy()
            if phase == "http":
                self._bind()
            self._run(phase)
        self.log.say("The server is fired up and ready to roll!")
        self.ready_at = time.monotonic() + self.fake.unready_seconds
        self._stamp("ready")
        if self.fake.die_at == "serving":
            time.sleep(self.fake.die_after)
            self._die("serving")
        self._rest()

    def _expire(self):
        time.sleep(self.fake.lifetime)
        os._exit(99)

    @staticmethod
    def _rest():
        while True:
            time.sleep(3600)

    def pause(self, here):
        """Where a breakpoint's words are `here`: take it (NAME.hit), and go on once that is gone."""
        for at in Path(self.fake.breakpoints).glob("*.at") if self.fake.breakpoints else ():
            with contextlib.suppress(FileNotFoundError):
                if at.read_text().strip() == here:
                    hit = at.rename(at.with_suffix(".hit"))
                    while hit.exists():
                        time.sleep(0.02)

    def _run(self, phase):
        self.pause(f"phase {phase}")
        lines = getattr(self, f"_{phase}")()
        pause = self.fake.phase_seconds.get(phase, self.fake.load_seconds / len(PHASES)) / max(1, len(lines))
        cut = (len(lines) + 1) // 2 if phase in (self.fake.silent_at, self.fake.die_at) else len(lines)
        for say, text in lines[:cut]:
            time.sleep(pause)
            say(text)
        if phase == self.fake.loses:
            os.kill(self.kept[-1], signal.SIGKILL)
            self._stamp("dead")
        if phase == self.fake.silent_at:
            self._silent()
        if phase == self.fake.die_at:
            time.sleep(self.fake.die_after)
            self._die(phase)

    def _silent(self):
        """Silence, with or without signs of life."""
        self._stamp("silent")
        end = time.monotonic() + (self.fake.silent_seconds or math.inf)
        held, compiler = [], self._spawn("nvcc", "--dies") if self.fake.meanwhile == "compile" else 0
        with Path("/dev/zero").open("rb", buffering=0) as zeros:
            while time.monotonic() < end:
                if self.fake.meanwhile == "read":
                    zeros.read(8 << 20)
                if self.fake.meanwhile == "grow":
                    held.append(bytearray(4 << 20))
                if self.fake.meanwhile == "repeat":
                    self.log.say("Still waiting for the other ranks", 0)
                if self.fake.meanwhile != "spin":
                    time.sleep(0.2)
        if compiler:
            os.kill(compiler, signal.SIGKILL)
            os.waitpid(compiler, 0)

    def _args(self):
        shown = ", ".join(f"{name}={value!r}" for name, value in vars(self.options).items())
        lines = [
            (self.log.say, f"server_args=ServerArgs({shown})"),
            (self.log.say, "Using default HuggingFace chat template with detected content format: string"),
        ]
        return [(self.log.raw, self._noise()), *lines] if self.fake.log_bytes else lines

    def _noise(self):
        line = "/opt/venv/lib/python3.11/site-packages/torch/cuda/__init__.py:61: FutureWarning: noise, noise, noise\n"
        return line * (self.fake.log_bytes // len(line) + 1)

    def _rendezvous(self):
        lines = [(self.log.every, "Init parallel begin."), (self.log.every, "sglang is using nccl==2.28.9")]
        return [
            *(lines if self.log.ranks > 1 else lines[:1]),
            (self.log.every, "Init parallel ends. elapsed=0.31 s"),
            (self.log.every, "Memory baseline taken. mem usage=0.51 GB"),
        ]

    def _weights(self, kind="KimiK25ForConditionalGeneration", shards=4):
        bar = "\rMulti-thread loading shards: {:3}% Completed | {}/{} [00:0{}<00:00,  1.00it/s]"
        bars = [bar.format(100 * i // shards, i, shards, i) for i in range(shards + 1)]
        return [
            (self.log.every, "Load weight begin. avail mem=94.12 GB"),
            *((self.log.raw, text) for text in (*bars, "\n")),
            (self.log.every, f"Load weight end. elapsed=4.10 s, type={kind}, avail mem=21.75 GB, mem usage=72.37 GB."),
        ]

    def _draft(self):
        drafted = self.options.speculative_draft_model_path
        return self._weights("LlamaForCausalLMEagle3", shards=1) if drafted else []

    def _kv(self):
        size = "dtype: torch.bfloat16, #tokens: 215040, KV size: 14.41 GB"
        lines = (f"KV Cache is allocated. {size}", "Memory pool end. avail mem=6.94 GB")
        return [(self.log.every, line) for line in lines]

    def _graphs(self, name="", sizes=(48, 40, 32, 24, 16, 8, 4, 2, 1)):
        name = name or ("target verify" if self.accept_length else "target decode")
        bar, count = "\rCapturing batches (bs={} avail_mem=6.{} GB): {:3}%|##  | {}/{}", len(sizes)
        bars = [bar.format(size, 90 - i, 100 * i // count, i, count) for i, size in enumerate((*sizes, sizes[-1]))]
        begin = f"Capture {name} CUDA graph begin. backend=full, num_tokens_per_req=4, avail mem=6.90 GB"
        end = f"Capture {name} CUDA graph end. bs={list(sizes)}, elapsed=2.11 s, mem usage=0.60 GB, avail mem=6.30 GB."
        return [(self.log.every, begin), *((self.log.raw, text) for text in (*bars, "\n")), (self.log.every, end)]

    def _draft_graphs(self):
        drafted = self.options.speculative_draft_model_path
        return [*self._graphs("draft decode"), *self._graphs("draft extend")] if drafted else []

    def _summary(self):
        sizes = "chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, context_len=262144"
        times = "load_weight=4.10, kv_cache_allocation=0.20, scheduler_e2e=9.80, cuda_graph={}, tokenizer_e2e=12.00"
        return [
            (lambda text: self.log.say(text, 0), f"max_total_num_tokens=215040, {sizes}, available_gpu_mem=6.30 GB"),
            (self.log.say, f"Engine startup timings (s): {times}"),
        ]

    def _http(self):
        address = f"http://{self.options.host}:{self.options.port}"
        lines = (f"Started server process [{os.getpid()}]", "Waiting for application startup.",
                 "Application startup complete.", f"Uvicorn running on {address} (Press CTRL+C to quit)")  # fmt: skip
        return [(self.log.say, f"INFO:     {line}") for line in lines]

    def _warmup(self):
        prefill = "Prefill batch, #new-seq: 1, #new-token: 7, #cached-token: 0, token usage: 0.00, #running-req: 0"
        access = 'INFO:     127.0.0.1:40000 - "GET /model_info HTTP/1.1" 200 OK'
        return [(self.log.say, access), (lambda text: self.log.say(text, 0), prefill)]

    def _bind(self):
        Handler.server_of = self
        where = (self.options.host, self.options.port)
        try:
            httpd = Httpd(where, Handler)
        except OSError as error:  # as uvicorn puts it
            said = f"error while attempting to bind on address {where}: {os.strerror(error.errno or 0).lower()}"
            self.log.say(f"ERROR:    [Errno {error.errno}] {said}")
            self._leave(1)
        threading.Thread(target=httpd.serve_forever, daemon=True).start()

    # ---- processes

    def _occupy(self):
        """Start what it starts, and take GPU memory."""
        if self.fake.ignore_term:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # ignored signals stay ignored in what is executed
        title = "sglang::scheduler_TP{}".format
        kept = [self._spawn(title(rank), "--dies") for rank in range(self.fake.children)]
        kept += [self._spawn(title(rank)) for rank in range(self.fake.stragglers)]
        kept += [self._spawn(title(rank), session=True) for rank in range(self.fake.orphans)]
        self.kept = kept
        for rank, pid in enumerate(kept[: self.log.ranks] or [os.getpid()]):
            self._hold(pid, [rank] if kept else range(self.log.ranks))

    def _spawn(self, title, *dies, session=False):
        """A process whose command line begins with its title; its pid, once it bears that title."""
        told, tell = os.pipe()
        os.set_inheritable(tell, True)
        words = [title, __file__, "--child", str(self.fake.lifetime), str(tell), *dies]
        pid = os.fork()
        if not pid:
            self._become(words, session)
        if session:
            os.waitpid(pid, 0)
        os.close(tell)
        with os.fdopen(told) as answer:
            return int(answer.readline())

    @staticmethod
    def _become(words, session):
        # SPT_NOENV: else setproctitle wipes the environment. PYTHONHOME: Python looks for itself by argv[0].
        environment = dict(os.environ) if os.environ.get("SPT_NOENV") else {}
        try:
            if session:
                os.setsid()
                if os.fork():
                    os._exit(0)
            os.execve(sys.executable, words, {**environment, "PYTHONHOME": sys.base_prefix})
        finally:
            os._exit(127)

    def _hold(self, pid, ranks):
        state = os.environ.get("FAKE_GPU_STATE")
        if not state or not self.fake.gpu_mib:
            return
        visible = [int(word) for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.isdigit()]
        gpus = [visible[rank] if rank < len(visible) else rank for rank in ranks]
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        title = "sglang::scheduler" if pid != os.getpid() else sys.executable
        mib = {str(gpu): self.fake.gpu_mib for gpu in gpus}
        holder = {"pid": pid, "start_ticks": int(fields[19]), "name": title, "mib": mib}
        target = Path(state, "holders", f"{pid}.json")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.with_suffix(".tmp").write_text(json.dumps(holder))
        target.with_suffix(".tmp").replace(target)

    # ---- the end

    def _die(self, phase):
        words = self.fake.die_error or FITTING.get(phase, "illegal")
        if words != "none":
            self._last_words(*ERRORS[words])
        if self.fake.lingers:
            self._rest()
        self._leave(self.fake.die_exit)

    def _last_words(self, who, frames, text):
        if who is None:
            self.log.raw(f"usage: launch_server.py [-h] --model-path MODEL_PATH\n{text}\n")
            return
        trace = f"Traceback (most recent call last):\n{frames}    raise error\n{text}\n"
        if who == "main":
            self.log.raw(trace)
            return
        self.log.say(f"{who} hit an exception: {trace}" if who == "Scheduler" else f"{who}: {trace}", 0)
        if who == "Scheduler":
            self.log.say("Received sigquit from a child process. It usually means the child failed.")

    def _stamp(self, name):
        if self.fake.stamps:
            Path(self.fake.stamps, name).write_text(str(time.time()))

    def _leave(self, status):
        self._stamp("dead")
        if status >= 0:
            os._exit(status)
        number = signal.Signals[f"SIG{self.fake.die_signal}"]
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        time.sleep(60)  # any signal but those that kill: it was not meant so

    def crash(self, text):
        """A scheduler dies of an exception while it serves, and takes the rest along."""
        self._last_words("Scheduler", ERRORS["illegal"][1], text)
        self._leave(self.fake.die_exit)

    # ---- generating

    @property
    def accept_length(self):
        """As the loaded draft says it, else as it is told to."""
        said, _ = self.weights.draft.speaks()
        return said or self.fake.accept_length or (3.0 if self.options.speculative_draft_model_path else 0.0)

    def forget_average(self):
        """As a flush of the cache does."""
        self.averaged = (self.tokens, self.verified)

    def generate(self, prompt, limit, works, streams=False):
        """(words, finish reason, meta_info) of an answer; one that streams takes its time later, word by word.

        `works` takes so many seconds, and raises Aborted.
        """
        known = {"2+2": "2 + 2 = 4.", "capital of France": "The capital of France is Paris."}
        _, garbage = self.weights.draft.speaks()
        text = self.fake.answer or next((said for asked, said in known.items() if asked in prompt), "")
        endless = (garbage or "count on and").split(" ")
        words = text.split(" ") if text and not garbage else [endless[i % len(endless)] for i in range(limit)]
        finish = "length" if len(words) >= limit else "stop"
        words = words[:limit]
        seconds = self.fake.slow_seconds + len(words) / (self.fake.tokens_per_second or math.inf)
        works(self.fake.slow_seconds if streams else seconds)
        meta = {
            "id": f"{self.generations:032x}",
            "finish_reason": {"type": finish, **({"length": limit} if finish == "length" else {"matched": 163586})},
            "prompt_tokens": len(prompt.split()),
            "completion_tokens": len(words),
            "cached_tokens": 0,
            "e2e_latency": seconds,
            **self._speculation(len(words)),
        }
        with self.state:
            self.generations += 1
            self.tokens += len(words)
            self.verified += meta.get("spec_verify_ct", 0)
        self._decoded(meta)
        return words, finish, meta

    def _decoded(self, meta):
        accept = "accept len: {spec_accept_length:.2f}, accept rate: {spec_accept_rate:.2f}, "
        accept = accept if "spec_verify_ct" in meta else ""
        usage = f"Decode batch, #running-req: 1, #token: {meta['completion_tokens']}, token usage: 0.00, "
        speed = "cuda graph: True, gen throughput (token/s): 100.00, #queue-req: 0"
        self.log.say(usage + accept.format(**meta) + speed, 0)

    def _speculation(self, generated):
        """The spec_* figures: one token comes from the prefill, each verify step gives one and what it accepted."""
        offered = self.options.speculative_num_draft_tokens - 1
        if not self.fake.acceptance or not self.accept_length or generated < 2:
            return {}
        length = max(1.0, self.accept_length - self.fake.wanes * self.generations)
        steps = max(1, round((generated - 1) / min(length, offered + 1)))
        accepted = min(generated - 1 - steps, steps * offered)
        histogram = [0] * (offered + 1)
        histogram[accepted // steps] = steps - accepted % steps
        if accepted % steps:
            histogram[accepted // steps + 1] = accepted % steps
        return {
            "spec_accept_rate": accepted / (steps * offered),
            "spec_accept_length": generated / steps,
            "spec_num_correct_drafts": accepted,
            "spec_num_proposed_drafts": steps * offered,
            "spec_verify_ct": steps,
            "spec_correct_drafts_histogram": histogram,
        }

    def done(self):
        """After an answer was sent: some servers have had enough then."""
        if self.fake.exits_after and self.generations >= self.fake.exits_after:
            self._die("serving")


class Httpd(http.server.ThreadingHTTPServer):
    """As uvicorn."""

    daemon_threads = True
    request_queue_size = 2048  # with the usual 5, clients wait for SYNs

    def handle_error(self, request, client_address):
        """A client that has gone before its answer is no line in the log."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Handler(http.server.BaseHTTPRequestHandler):
    """SGLang's routes."""

    protocol_version = "HTTP/1.1"
    server_of: Server
    OPEN = ("/health", "/metrics", "/ready")  # asked for without a key

    def do_GET(self):
        life = self.server_of
        path = self.path.partition("?")[0]
        self.server_of.pause(f"{self.command} {path}")
        if self._refused(path):
            return
        if life.weights.admits(path):
            self._changes(path)
            return
        ready = time.monotonic() >= life.ready_at
        routes = {
            "/health": lambda: self._answer(200 if ready and life.gate.passes(HEALTH_SECONDS) else 503),
            "/health_generate": lambda: self._answer(
                200 if ready and not life.fake.dead_backend and life.gate.passes(HEALTH_SECONDS) else 503
            ),
            "/ready": lambda: self._answer(200 if ready and not life.gate.mode else 503),
            "/model_info": lambda: self._answer(200, self._model_info()),
            "/server_info": lambda: self._answer(200, self._server_info()),
            "/v1/models": lambda: self._answer(200, {"object": "list", "data": [self._model_card()]}),
            "/metrics": lambda: self._answer(200, self._metrics()) if life.options.enable_metrics else self._unknown(),
            "/generate": self._generate,
            "/v1/chat/completions": self._chat,
        }
        routes.get(path.replace("/get_", "/"), self._unknown)()

    def _changes(self, path):
        """One of the paths by which weights change."""
        life = self.server_of
        try:
            status, content = life.weights.answer(self.command, self.path, self.body)
        except weights.Gone:
            self._close()
            return
        life.pause(f"{self.command} {path} done")
        self._answer(status, content)

    def _close(self):
        self.close_connection = True
        self.connection.close()

    do_POST = do_GET  # noqa: N815 - the standard library asks for this name

    def log_message(self, form, *words):
        self.server_of.log.say(f"INFO:     {self.address_string()}:{self.client_address[1]} - {form % words}")

    def log_request(self, code="-", size="-"):
        self.log_message('"%s" %s', self.requestline, code)

    def _refused(self, path):
        """Whatever is wrong with this path or this caller; True when that was the whole answer."""
        life, fake = self.server_of, self.server_of.fake
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        generation = path in ("/generate", "/v1/chat/completions")
        if fake.drop and path.startswith(fake.drop):
            self._close()
            return True
        if (fake.hang and path.startswith(fake.hang)) or (fake.dead_backend and generation):
            life._rest()
        admin = life.options.admin_api_key if life.weights.admits(path) else None
        key = admin or fake.api_key or life.options.api_key
        if key and not path.startswith(self.OPEN) and self.headers.get("Authorization") != f"Bearer {key}":
            self._answer(401, {"error": "Unauthorized"})
            return True
        if path in fake.codes:
            self._answer(fake.codes[path], {"error": "as asked for"})
            return True
        if generation and time.monotonic() < life.ready_at - 1e-9 and life.ready_at != math.inf:
            self._answer(503, {"error": "busy"})
            return True
        return False

    def _unknown(self):
        self._answer(404, {"detail": "Not Found"})

    def _answer(self, code, content=""):
        text = content if isinstance(content, str) else json.dumps(content)
        payload = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if isinstance(content, str) else "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _events(self, chunks, works):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        pause = 1 / (self.server_of.fake.tokens_per_second or math.inf)
        for chunk in (*map(json.dumps, chunks), "[DONE]"):
            works(pause)
            self.wfile.write(f"data: {chunk}\n\n".encode())
        self.close_connection = True

    def _path_of_model(self):
        return self.server_of.fake.model or self.server_of.options.model_path

    def _model_info(self):
        return {
            "model_path": self._path_of_model(),
            "served_model_name": self.server_of.model,
            "tokenizer_path": self._path_of_model(),
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": self.server_of.weights.name,
            "has_image_understanding": False,
            "model_type": "kimi_k25",
            "architectures": ["KimiK25ForConditionalGeneration"],
        }

    def _server_info(self):
        life = self.server_of
        internal = {"last_gen_throughput": 100.0, "memory_usage": {"weight": 72.37, "kvcache": 14.41, "graph": 0.6}}
        tokens, verified = life.tokens - life.averaged[0], life.verified - life.averaged[1]
        if verified and life.fake.acceptance:
            internal["avg_spec_accept_length"] = tokens / verified
        return {
            **vars(life.options),
            "model_path": self._path_of_model(),
            "launch_command": sys.argv,
            "max_total_num_tokens": 215040,
            "internal_states": [internal],
            "version": life.fake.version,
            "frontend": "python",
        }

    def _model_card(self):
        name = self.server_of.model
        return {"id": name, "object": "model", "created": 0, "owned_by": "sglang", "root": name, "max_model_len": 8192}

    def _metrics(self):
        life = self.server_of
        length = life.tokens / life.verified if life.verified else 0.0
        values = {"num_running_reqs": 0, "gen_throughput": 100.0, "token_usage": 0.0}
        values |= {"num_requests_total": life.generations, "generation_tokens_total": life.tokens}
        if life.accept_length and life.fake.acceptance:
            values |= {"spec_accept_length": length, "spec_verify_calls_total": life.verified}
        label = f'{{model_name="{life.model}",tp_rank="0"}}'
        return "".join(f"# TYPE sglang:{name} gauge\nsglang:{name}{label} {value}\n" for name, value in values.items())

    def _generate(self):
        self._request(self._generates)

    def _chat(self):
        self._request(self._chats)

    def _request(self, answers):
        """One of those that wait while it is paused. One that is aborted has no words."""
        life, asked = self.server_of, json.loads(self.body or b"{}")
        with life.gate.request() as works:
            try:
                answers(asked, works)
            except gate.Aborted:
                self._aborted(asked)
                return
        life.done()

    def _aborted(self, asked):
        if asked.get("stream"):
            self._close()  # the real one sends a last chunk with that reason
            return
        reason = {"type": "abort", "message": "Abort before prefill"}
        choice = {"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "abort"}
        self._answer(200, {"text": "", "meta_info": {"finish_reason": reason}, "choices": [choice]})

    def _generates(self, asked, works):
        limit = int(asked.get("sampling_params", {}).get("max_new_tokens", 128))
        words, _, meta = self.server_of.generate(str(asked.get("text", "")), limit, works, bool(asked.get("stream")))
        whole = {"text": " ".join(words), "output_ids": list(range(len(words))), "meta_info": meta}
        if asked.get("stream"):
            self._events(self._growing(whole, words), works)
        else:
            self._answer(200, whole)

    @staticmethod
    def _growing(whole, words):
        """Each event has the text so far; what is known at the end alone stands in the last one."""
        for i in range(1, len(words)):
            meta = {**whole["meta_info"], "completion_tokens": i, "finish_reason": None}
            meta = {name: value for name, value in meta.items() if not name.startswith("spec_")}
            yield {"text": " ".join(words[:i]), "meta_info": meta}
        yield whole

    def _chats(self, asked, works):
        prompt = str(asked["messages"][-1]["content"])
        limit = int(asked.get("max_completion_tokens") or asked.get("max_tokens") or 128)
        words, finish, meta = self.server_of.generate(prompt, limit, works, bool(asked.get("stream")))
        base = {"id": meta["id"], "created": int(time.time()), "model": self.server_of.model}
        if asked.get("stream") and asked.get("return_meta_info"):  # as the real one
            self._answer(400, {"object": "error", "message": "return_meta_info is not supported with streaming."})
        elif asked.get("stream"):
            self._events([*self._chunks(base, asked, words, finish), *self._counted(base, asked, meta)], works)
        else:
            self._answer(200, self._completion(base, asked, words, finish, meta))

    def _message(self, words):
        text, kind = " ".join(words), self.server_of.fake.reasoning
        thought = {"only": text, "both": "I think."}.get(kind)
        content = None if kind == "only" else text
        return {"role": "assistant", "content": content, "reasoning_content": thought, "tool_calls": None}

    def _completion(self, base, asked, words, finish, meta):
        counts = {name: meta[name] for name in ("prompt_tokens", "completion_tokens")}
        choice = {"index": 0, "message": self._message(words), "logprobs": None, "finish_reason": finish}
        if asked.get("return_meta_info"):
            choice["meta_info"] = meta
        answer = {**base, "object": "chat.completion", "choices": [choice]}
        answer["usage"] = {**counts, "total_tokens": sum(counts.values()), "reasoning_tokens": 0}
        spec = {name: value for name, value in meta.items() if name.startswith("spec_")}
        if asked.get("return_spec_tokens_details") and spec:
            answer["sglext"] = {"spec_tokens_details": spec}
        return answer

    def _chunks(self, base, asked, words, finish):
        kind = self.server_of.fake.reasoning
        part = "reasoning_content" if kind == "only" else "content"
        deltas = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": "I think."}] if kind == "both" else []
        deltas += [{part: word if not i else f" {word}"} for i, word in enumerate(words)]
        for i, delta in enumerate(deltas):
            reason = finish if i == len(deltas) - 1 else None
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
            usage = {"completion_tokens": max(0, i + len(words) + 1 - len(deltas))}
            more = {"usage": usage} if (asked.get("stream_options") or {}).get("continuous_usage_stats") else {}
            yield {**base, "object": "chat.completion.chunk", "choices": [choice], **more}

    @staticmethod
    def _counted(base, asked, meta):
        """The last chunks of a stream, which have no choices."""
        last = {**base, "object": "chat.completion.chunk", "choices": []}
        spec = {name: value for name, value in meta.items() if name.startswith("spec_")}
        if asked.get("return_spec_tokens_details") and spec:
            yield {**last, "usage": None, "sglext": {"spec_tokens_details": spec}}
        if (asked.get("stream_options") or {}).get("include_usage"):
            yield {**last, "usage": {name: meta[name] for name in ("prompt_tokens", "completion_tokens")}}


def child(lifetime, tell, dies=""):
    """A scheduler: it bears a title, and waits. With `dies`, it goes with its parent (as SGLang's: PDEATHSIG)."""
    libc, title = ctypes.CDLL(None), Path("/proc/self/cmdline").read_bytes().partition(b"\0")[0]
    libc.prctl(15, title)  # PR_SET_NAME, as setproctitle does: its first 15 bytes
    if dies:
        libc.prctl(1, signal.SIGKILL)
    with os.fdopen(int(tell), "w") as answer:
        answer.write(f"{os.getpid()}\n")
    time.sleep(float(lifetime))


def main(words):
    if words[:1] == ["--child"]:
        child(*words[1:])
    elif "-c" in words and set(words[: words.index("-c")]) <= {"-I", "-E", "-s", "-S", "-P", "-B", "-u"}:
        interpreter.interpret(words, Fake.of(()).version)
    else:
        options = flags.configured(flags.parse(words))
        fake = Fake.of(options.fake)
        del options.fake
        Server(options, fake).live()


if __name__ == "__main__":
    main(sys.argv[1:])
