"""A running server, asked for what a hand-over needs, within bounds: a part of programs, no program.

What is asked where is the table's (deploy/engines/_sglang_swap.py). Standard library, Python 3.8.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

LONGEST = 64 << 20  # bytes of an answer; checksums are the longest, some 100 bytes a tensor and rank
WORDS = 500  # characters of an answer that are told


class Silent(Exception):
    """It took the question, as far as is known, and no answer came: what it did is not known."""


class Unasked(Exception):
    """It answered that it did not do it, with `status`, or could not be asked at all (0)."""

    def __init__(self, words: str, status: int = 0) -> None:
        super().__init__(words)
        self.status = status


class Server:
    """`api`: {question: [path, body]}; `keys`: bearer keys, of which the first one that is not refused is kept;
    `patience`: seconds for an answer.
    """

    def __init__(self, url: str, keys: Sequence[str], api: dict[str, Any], patience: float) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "", parts.port or 80
        self.keys = list(keys) or [""]
        self.api, self.patience = api, patience

    def ask(self, question: str, **more: Any) -> dict[str, Any]:
        """Its answer, an empty one where it is no JSON object. Silent or Unasked where it did not do it."""
        path, body = self.api[question]
        content = json.dumps({**body, **more}).encode()
        status, text = self._post(path, content)
        while status in (401, 403) and len(self.keys) > 1:
            del self.keys[0]
            status, text = self._post(path, content)
        told = _object(text)
        if status == 200 and told.get("success", True):
            return told
        words = str(told.get("message") or text.decode("utf-8", "replace")).strip()[:WORDS]
        said = {401: "it wants an API key that we do not have", 403: "our API key may not ask it"}.get(status, words)
        raise Unasked(f"{path} answered {status}: {said}", status)

    def checksums(self, ranks: int) -> dict[str, str]:
        """{parameter: checksum} of the draft that is loaded, and of several ranks {"parameter@rank": checksum}."""
        told = self.ask("checksums").get("ranks")
        each = [rank for rank in told if isinstance(rank, dict)] if isinstance(told, list) else []
        found: dict[str, str] = {}
        for at, rank in enumerate(each):
            mark, sums = f"@{_rank(rank, at)}" if ranks > 1 else "", rank.get("checksums")
            found.update(
                {f"{name}{mark}": str(value) for name, value in sums.items()} if isinstance(sums, dict) else {}
            )
        if len(each) != ranks or not found:
            path = self.api["checksums"][0]
            raise Unasked(f"{path} told {len(found)} checksums of {len(each)} ranks; there are {ranks}", 200)
        return found

    def update(self, pickled: bytes, ranks: int) -> None:
        """Have a piece loaded by every rank: all of them map the same file."""
        blob = base64.b64encode(pickled).decode("ascii")
        self.ask("update", serialized_named_tensors=[blob] * ranks)

    def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        if self.keys[0]:
            headers["Authorization"] = f"Bearer {self.keys[0]}"
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.patience)
        try:
            try:
                connection.connect()
            except OSError as error:
                raise Unasked(f"{self.host}:{self.port} cannot be reached: {_why(error)}") from None
            try:
                connection.request("POST", path, body, headers)
                answer = connection.getresponse()
                return answer.status, answer.read(LONGEST)
            except socket.timeout:  # noqa: UP041 another error than TimeoutError before Python 3.10
                raise Silent(f"{path} gave no answer within {self.patience:g} s") from None
            except (OSError, http.client.HTTPException) as error:
                raise Silent(f"{path} broke off without an answer: {_why(error)}") from None
        finally:
            connection.close()


def _why(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _rank(told: dict[str, Any], at: int) -> int:
    """By its own word, in a list with one entry a role (0.5.23) or alone; else its place."""
    info = told.get("parallelism_info")
    first = info[0] if isinstance(info, list) and info else info
    rank = first.get("tp_rank") if isinstance(first, dict) else None
    return rank if isinstance(rank, int) else at
