"""One life of the fake server: its phases and its log, its processes, its end, and what it generates."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sys
import threading
import time
from pathlib import Path

from fake_sglang import flags, gate, weights  # type: ignore[import-not-found]
from fake_sglang.answers import Handler, Httpd  # type: ignore[import-not-found]
from fake_sglang.errors import ERRORS, FITTING  # type: ignore[import-not-found]
from fake_sglang.misbehaviour import Fake  # type: ignore[import-not-found]

CHILD = str(Path(__file__).with_name("child.py"))
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
        words = [title, CHILD, str(self.fake.lifetime), str(tell), *dies]
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


def main(words):
    options = flags.configured(flags.parse(words))
    fake = Fake.of(options.fake)
    del options.fake
    Server(options, fake).live()
