"""The endpoints by which weights change while it serves, as SGLang 0.5.23 has them; those that came later than the
version that it plays are not there. With faults on demand.

`faults` of the fake says {path: "WORD [N[-[M]]]"}: what goes wrong at the Nth call to that path, or from the Nth to
the Mth, or from the Nth on; at each without a number. As "@FILE" it is read from there at each call, and calls are
counted anew where that has changed. Words:

    refuse   400, nothing is done                  die        dies instead of doing it
    hang     never answers, nothing is done        drop       closes the connection, nothing is done
    ignore   says that it is done, and is not      then-die   does it, and dies before it answers
    lose     one tensor of the piece is not loaded  then-drop  does it, and closes the connection without an answer
    half     half of the piece's tensors are loaded, then 400
    lie      /weights_checker: another checksum of one parameter, of the last rank
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import base64
import binascii
import collections
import hashlib
import json
import re
import urllib.parse
from pathlib import Path

from fake_sglang import draft, tensors  # type: ignore[import-not-found]
from fake_sglang.gate import MODES  # type: ignore[import-not-found]

SINCE = {
    "/flush_cache": (),
    "/pause_generation": (0, 5, 8),
    "/continue_generation": (0, 5, 8),
    "/update_weights_from_tensor": (0, 5, 8),
    "/weights_checker": (0, 5, 8),
    "/begin_weight_update": (0, 5, 21),
    "/end_weight_update": (0, 5, 21),
}
SELECTORS = ("target", "draft", "all")
DONE = {"success": True, "message": "Success"}
UNFLUSHED = (
    "Weights were updated, but the cache was not flushed because requests are still running or queued. "
    "Retract or finish them, then call /flush_cache."
)


class Gone(Exception):
    """The connection is to be closed without an answer."""


class Wrong(Exception):
    """400: what is asked for is not in order, or not now. `content` is the answer."""

    def __init__(self, message, content=None):
        super().__init__(message)
        self.content = content or {"success": False, "message": message}


class Weights:
    """The draft that is loaded, the session that changes it, and who asks for that."""

    def __init__(self, life):
        self.life, self.gate = life, life.gate
        options = life.options
        self.version = tuple(map(int, re.findall(r"\d+", life.fake.version)[:3]))
        self.sessions = self.version >= SINCE["/begin_weight_update"]
        folder = options.speculative_draft_model_path
        self.draft = draft.Draft(folder, life.log.ranks, options.model_path, swappable=self.sessions)
        self.session = False
        self.name = "default"  # the weights' version, as /model_info says it
        self.faults: dict[str, str] = {}
        self.calls: collections.Counter[str] = collections.Counter()

    def admits(self, path):
        """Whether it is one of these paths, for which an admin's key is asked where there is one."""
        return path in SINCE and self.version >= SINCE[path]

    def answer(self, command, url, body):
        """(status, content) of a call. Raises Gone."""
        path, _, query = url.partition("?")
        if command == "GET" and path not in ("/flush_cache", "/weights_checker"):
            return 405, {"detail": "Method Not Allowed"}
        fault = self._due(path)
        if fault == "hang":
            self.life._rest()
        if fault == "drop":
            raise Gone
        if fault == "die":
            self.life.crash("RuntimeError: as asked for")
        if fault in ("refuse", "ignore"):
            said = {"success": fault == "ignore", "message": "as asked for"}
            return (200, {**said, "status": "ok"}) if fault == "ignore" else (400, said)
        try:
            content = getattr(self, path.replace("/", "_"))(self._asked(body, path), fault, query)
        except Wrong as wrong:
            return 400, wrong.content
        if fault == "then-die":
            self.life.crash("RuntimeError: as asked for")
        if fault == "then-drop":
            raise Gone
        return 200, content

    def _due(self, path):
        """The fault of this call; "" without one."""
        wanted = self.life.fake.faults
        faults = json.loads(Path(wanted[1:]).read_text()) if isinstance(wanted, str) else wanted
        if faults != self.faults:
            self.faults = faults
            self.calls.clear()
        self.calls[path] += 1
        word, _, when = faults.get(path, "").partition(" ")
        first, dash, last = when.partition("-")
        number = self.calls[path]
        late = number < int(first or 1)
        over = first and number > (int(last) if last else number if dash else int(first))
        return "" if late or over else word

    @staticmethod
    def _asked(body, path):
        """The body's JSON. A request that FastAPI would not take is refused as by SGLang, with 400 instead of 422."""
        try:
            asked = json.loads(body) if body or path not in ("/flush_cache", "/weights_checker") else {}
        except ValueError:
            asked = None
        if not isinstance(asked, dict):
            raise _unfit("body: not an object")
        if asked.get("selector", "all") not in SELECTORS:
            raise _unfit("selector: Input should be 'target', 'draft' or 'all'")
        return asked

    # ---- what is asked for

    def _pause_generation(self, asked, *_):
        mode = asked.get("mode", "abort")
        if mode not in MODES:
            raise _unfit("mode: Input should be 'abort', 'retract' or 'in_place'")
        self.gate.pause(mode)
        return {"message": "Generation paused successfully.", "status": "ok"}

    def _continue_generation(self, *_):
        self.gate.resume()
        return {"message": "Generation continued successfully.", "status": "ok"}

    def _flush_cache(self, _, __, query):
        wait = float(urllib.parse.parse_qs(query).get("timeout", ["0"])[0]) if self.version >= (0, 5, 21) else 0.0
        if not self._flushed(wait):
            raise Wrong("", "Flush cache failed.\n")
        return (
            "Cache flushed.\nPlease check backend logs for more details. "
            "(When there are running or waiting requests, the operation will not be performed.)\n"
        )

    def _flushed(self, wait=0.0):
        with self.gate.changed:
            idle = self.gate.changed.wait_for(self.gate.idle, wait)
        if idle:
            self.life.forget_average()
            self.life.log.every("Cache flushed successfully!")
        else:
            self.life.log.say("Cache not flushed because there are pending requests.", 0)
        return idle

    def _begin_weight_update(self, *_):
        with self.gate.update():
            if self.session:
                raise Wrong("a weight-update session is already open; call end_weight_update() first")
            self.session = True
        return DONE

    def _end_weight_update(self, *_):
        with self.gate.update():
            if not self.session:
                raise Wrong("no weight-update session is open; call begin_weight_update() first")
            self.session = False
        return DONE

    def _update_weights_from_tensor(self, asked, fault, _):
        payloads = _payloads(asked)
        with self.gate.update():
            if self.sessions and not self.session:
                raise Wrong("update_weights_from_tensor must run between begin_weight_update() and end_weight_update()")
            try:
                self._load(payloads, asked.get("selector", "all") if self.sessions else "all", fault)
            except Exception as error:  # noqa: BLE001 - nobody there catches it: the scheduler dies of it
                self.life.crash(f"{type(error).__name__}: {error}")
            if fault == "half":
                raise Wrong("Failed to update parameter online: as asked for. Please discard the whole weights.")
            self.name = asked.get("weight_version") or self.name
            if asked.get("flush_cache", True) and not self._flushed():
                raise Wrong(UNFLUSHED)
        return DONE

    def _load(self, payloads, selector, fault):
        for rank in range(self.life.log.ranks):
            given = tensors.unpickled(payloads[rank])
            if fault == "half":
                given = given[: len(given) // 2]
            if fault == "lose":
                given = given[1:]
            if selector != "target":
                self.draft.load(rank, given)
            self.draft.spoilt |= selector != "draft"  # the target has parameters of the same names

    def _weights_checker(self, asked, fault, _):
        action = asked.get("action", "checksum")
        if action != "checksum" or not self.sessions:
            raise Wrong(f"Unsupported action={action!r}")
        roles = [role for role in ("target", "draft") if asked.get("selector", "all") in (role, "all")]
        ranks = [self._checked(rank, roles) for rank in range(self.life.log.ranks)]
        if fault == "lie":
            name = max(ranks[-1]["checksums"])
            ranks[-1]["checksums"][name] = ranks[-1]["checksums"][name][::-1]
        whole = hashlib.sha256("".join(rank["per_gpu_checksum"] for rank in ranks).encode()).hexdigest()
        return {"success": True, "message": "Success.", "ranks": ranks, "per_engine_checksum": whole}

    def _checked(self, rank, roles):
        found: dict[str, str] = {}
        for role in roles:
            found |= self.draft.checksums(rank, role)
        place = {"tp_rank": rank, "tp_size": self.life.log.ranks, "rank": rank, "size": self.life.log.ranks}
        place |= {"dp_rank": 0, "dp_size": 1, "pp_rank": 0, "pp_size": 1}
        said = "".join(name + found[name] for name in sorted(found))
        return {
            "checksums": found,
            "per_gpu_checksum": hashlib.sha256(said.encode()).hexdigest(),
            "parallelism_info": [{"role": role, **place} for role in roles],
        }


def _payloads(asked):
    """The pickle for each rank."""
    try:
        return [base64.b64decode(text, validate=True) for text in asked["serialized_named_tensors"]]
    except (KeyError, TypeError, binascii.Error) as error:
        raise _unfit(f"serialized_named_tensors: {error!r}") from None


def _unfit(message):
    return Wrong(message, {"object": "error", "message": message, "type": "Bad Request", "param": None, "code": 400})
