"""What the fake server answers: SGLang's routes, as much of them as the tool needs."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import http.server
import json
import math
import sys
import time
from typing import Any

from fake_sglang import gate, weights  # type: ignore[import-not-found]

HEALTH_SECONDS = 20  # SGLANG_HEALTH_CHECK_TIMEOUT: so long does /health try to generate


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
    server_of: Any  # the one life of this process
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
