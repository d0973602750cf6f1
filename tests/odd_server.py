#!/usr/bin/env python3
r"""The fake server with wild answers: the environment's ODD says, by path, what comes instead of the right ones.

ODD is a JSON object, or @ and a file that has one and is read at each request.

{"/v1/models": {"body": "<html>"}}    this text, with its "status" or 200; "times": so often
{"/v1/models": {"raw": "garbage"}}    these bytes, and no HTTP
{"/v1/models": {"reset": true}}       the connection is reset
{"/v1/models": {"seconds": 60}}       the right answer, but so late
{"stream": {...}}                     what a streamed chat is answered with, as below
{"meta": {"spec_verify_ct": true}}    these values in the counters of SGLang
{"timings": {"predicted_n": 5}}       these counters of llama.cpp; its ready line is printed as well
{"log": "\u001b[2J"}                  this line in its log, before it is ready
{"vllm": {"kept": 1}}                 vLLM's ready line and /metrics, with so many drafts kept in each step of 2 tokens;
                                      "strangers": requests of others for each of ours, "unfinished": tokens of theirs,
                                      "late": seconds until a request is counted

A chat whose question is a JSON object is answered as that says, whatever ODD is:
{"status": 500, "type": "text/html", "body": ["<html>"], "then": "hang"}    pieces of a body, "times" over, each with a
"pause" of so many seconds after it, and then "hang" or "reset" instead of the end; {"asked": true} is answered with the
request itself
"""

# mypy: allow-untyped-defs, allow-untyped-calls, allow-subclassing-any

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fake_server  # type: ignore[import-not-found]
from fake_sglang import answers, server  # type: ignore[import-not-found]

ASKED = os.environ.get("ODD") or "{}"
ODD = {} if ASKED.startswith("@") else json.loads(ASKED)
COUNTED = {"requests": 0, "tokens": 0, "steps": 0, "kept": 0}


def count(tokens):
    odd = ODD["vllm"]
    asked = 1 + odd.get("strangers", 0)
    more = {"requests": asked, "tokens": asked * tokens + odd.get("unfinished", 0), "steps": asked * tokens // 2}
    for name, value in {**more, "kept": more["steps"] * odd["kept"]}.items():
        COUNTED[name] += value


def metrics():
    names = ["request_success", "generation_tokens", "spec_decode_num_drafts", "spec_decode_num_accepted_tokens"]
    pairs = zip(names, COUNTED.values(), strict=True)
    return "".join(f'vllm:{name}_total{{engine="0",model_name="tiny"}} {value}.0\n' for name, value in pairs)


class Server(server.Server):
    """With an odd log."""

    def _summary(self):
        lines = {"log": ODD.get("log"), "timings": "listening on http://", "vllm": "Application startup complete."}
        return [*super()._summary(), *((self.log.say, line) for name, line in lines.items() if name in ODD)]


class Handler(answers.Handler):
    """With odd answers."""

    def _refused(self, path):
        if ASKED.startswith("@"):
            ODD.clear()
            ODD.update(json.loads(Path(ASKED[1:]).read_text()))
        odd = ODD.get(path, {})
        time.sleep(odd.get("seconds", 0))
        if path == "/metrics" and "vllm" in ODD:
            odd = {"body": metrics()}
        if "body" in odd:
            self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if path.endswith("/completions") and json.loads(self.body).get("stream"):
                self._chat()
            else:
                self._answer(odd.get("status", 200), odd["body"] * odd.get("times", 1))
        elif "raw" in odd:
            self.wfile.write(odd["raw"].encode())
        elif "reset" in odd:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            return super()._refused(path)
        self.close_connection = True
        return True

    def _chat(self):
        asked = json.loads(self.body)
        prompt = str(asked["messages"][-1]["content"])
        streamed = asked.get("stream") and ODD.get("stream")
        if not streamed and not prompt.startswith("{"):
            super()._chat()
            return
        told = streamed or json.loads(prompt)
        delta = {"content": self.body.decode()}
        itself = f"data: {json.dumps({'choices': [{'delta': delta, 'finish_reason': 'stop'}]})}\n\n"
        self.send_response(told.get("status", 200))
        self.send_header("Content-Type", told.get("type", "text/event-stream"))
        self.send_header("Connection", "close")
        self.end_headers()
        for piece in [itself] if told.get("asked") else told["body"] * told.get("times", 1):
            self.wfile.write(piece.encode())
            time.sleep(told.get("pause", 0))
        if told.get("then") == "hang":
            self.rfile.read(1)  # until the client is gone
            print("the client is gone", file=sys.stderr, flush=True)
        if told.get("then") == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def _completion(self, *words):
        answer = super()._completion(*words)
        answer["choices"][0].get("meta_info", {}).update(ODD.get("meta", {}))
        if "vllm" in ODD:
            threading.Timer(ODD["vllm"].get("late", 0), count, [answer["usage"]["completion_tokens"]]).start()
        return {**answer, **({"timings": ODD["timings"]} if "timings" in ODD else {})}

    def _counted(self, base, asked, meta):
        """The same at the end of a stream."""
        told = {**meta, **ODD.get("meta", {})}
        for chunk in super()._counted(base, asked, told):
            yield {**chunk, **({"timings": ODD["timings"]} if "timings" in ODD else {})}
        if "vllm" in ODD:
            threading.Timer(ODD["vllm"].get("late", 0), count, [meta["completion_tokens"]]).start()

    def _model_card(self):
        root = {"root": self._path_of_model()} if "vllm" in ODD else {}
        return {**super()._model_card(), **root}

    def _answer(self, code, content=""):
        if "meta" in ODD and isinstance(content, dict) and "output_ids" in content:
            content["meta_info"].update(ODD["meta"])
        super()._answer(code, content)


if __name__ == "__main__":
    server.Server, server.Handler = Server, Handler
    fake_server.main(["--model-path" if word == "serve" else word for word in sys.argv[1:]])
