"""One request to a node's server, and its answer as JSON, whole or in chunks; what is none is told with its words."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Generator, Iterable, Iterator
from typing import Any

from deploy.engines import Question, _chat
from deploy.engines._counts import part
from deploy.errors import DeployError, NotReady, SmokeFailed
from deploy.plan import Node
from deploy.remote import Remote
from deploy.transport.http import HttpReply, HttpStream

LONGEST = 1 << 20  # bytes of one event of a stream
ENDS = re.compile(rb"\r\n|\n|\r(?!\Z)")  # of its lines; what follows a carriage return may still be on its way
SEEN = "deploy status says what runs; deploy logs shows the server's own words"
TAKEN = "the connection was taken, and then nothing came"
HUNG = (
    "its HTTP front lives; what stands behind it may be dead, or busy (a first request may compile kernels): "
    "deploy logs shows its own words"
)
KEY_WANTED = (401, 403)
KEY_REMEDY = "is its API key in your environment? secrets: {NAME: api-key}"


def get(path: str, node: Node, remote: Remote, *, timeout: float) -> HttpReply:
    """GET a path of the node's server, whatever its status; `timeout` seconds for the whole exchange. NotReady where
    no answer comes.
    """
    where = f"{remote.host.name}: GET {path}"
    try:
        return remote.http("GET", node.port, path, timeout=timeout, key=remote.place.key)
    except TimeoutError as error:
        raise NotReady(f"{where}: no answer within {timeout:g} s", evidence=TAKEN, remedy=HUNG) from error
    except OSError as error:
        evidence = f"GET {path}: {error or type(error).__name__}"
        what = f"{remote.host.name}: no answer from port {node.port}"
        raise NotReady(what, evidence=evidence, remedy=SEEN) from error


def ask(question: Question, node: Node, remote: Remote, *, timeout: float) -> dict[str, Any]:
    """POST the question; `timeout` seconds for the whole exchange."""
    where = f"{remote.host.name}: POST {question.path}"
    try:
        reply = remote.http(
            "POST", node.port, question.path, dict(question.body), timeout=timeout, key=remote.place.key
        )
    except TimeoutError as error:
        raise SmokeFailed(f"{where}: no answer within {timeout:g} s", evidence=TAKEN, remedy=HUNG) from error
    except OSError as error:
        raise SmokeFailed(
            f"{remote.host.name}: no answer from port {node.port}",
            evidence=f"POST {question.path}: {error or type(error).__name__}",
            remedy=SEEN,
        ) from error
    words = reply.body.decode(errors="replace")
    if reply.status != 200:
        raise refused(where, reply.status, reply.body)
    answer = parsed(words)
    if answer is None:
        raise SmokeFailed(f"{where} answers no JSON object", evidence=words[:1500])
    _no_error(answer, where)
    return answer


def refused(where: str, status: int, body: bytes, kind: type[DeployError] = SmokeFailed) -> DeployError:
    """What an answer with another status than 200 means; `kind` where it means nothing else."""
    words = body.decode(errors="replace")[:1500]
    if status == 503:
        return NotReady(f"{where} answers 503: it is not ready", evidence=words, remedy=SEEN)
    if status in KEY_WANTED:
        return kind(f"{where} answers {status}: it wants another API key", evidence=words, remedy=KEY_REMEDY)
    return kind(f"{where} answers {status}", evidence=words, remedy=SEEN)


def stream(
    question: Question, node: Node, remote: Remote, *, silence: float, whole: float = math.inf
) -> Generator[dict[str, Any]]:
    """POST a question that asks for a stream; each chunk of the answer as it comes.

    NotReady where nobody listens, or it is not ready. SmokeFailed for any other answer, for `silence` seconds without
    a word, for one that is longer than `whole` seconds on its way, and for a stream that ends before its end.
    Unreachable where the connection to the host was lost.
    """
    where = f"{remote.host.name}: POST {question.path}"
    words = (node.port, question.path, dict(question.body))
    patience = _Patience(silence, whole)
    try:
        with remote.http_stream("POST", *words, left=patience.left, key=remote.place.key) as answer:
            if answer.status != 200 or "event-stream" not in answer.headers.get("content-type", ""):
                raise _refused(where, answer)
            for chunk in _whole(_events(answer.pieces, where), where):
                yield chunk
                patience.renew()
    except ConnectionRefusedError as error:
        raise NotReady(f"{remote.host.name}: nobody listens on port {node.port}", remedy=SEEN) from error
    except TimeoutError as error:
        raise SmokeFailed(f"{where}: {patience.spent()}", remedy=SEEN) from error
    except OSError as error:
        remote.run("true")  # where the host is lost, that is told instead
        raise SmokeFailed(f"{where}: the answer breaks off", evidence=str(error), remedy=SEEN) from error


class _Patience:
    """Seconds without a chunk, and in all; what only keeps a connection alive is no chunk."""

    def __init__(self, seconds: float, whole: float) -> None:
        self._seconds, self._whole = seconds, whole
        now = time.monotonic()
        self._end, self._last = now + seconds, now + whole
        self._heard = False

    def renew(self) -> None:
        self._heard = True
        self._end = time.monotonic() + self._seconds

    def left(self) -> float:
        return min(self._end, self._last) - time.monotonic()

    def spent(self) -> str:
        """Which of the two is over, in words."""
        if self._heard and self._last <= self._end:
            return f"the answer is not at its end after {self._whole:g} s"
        return f"not a word for {self._seconds:g} s"


def _refused(where: str, answer: HttpStream) -> DeployError:
    body = next(answer.pieces, b"")
    if answer.status != 200:
        return refused(where, answer.status, body)
    kind = answer.headers.get("content-type", "nothing that it names")
    return SmokeFailed(
        f"{where} answers no stream of events, but {kind}", evidence=body.decode(errors="replace")[:1500]
    )


def _whole(chunks: Iterable[dict[str, Any]], where: str) -> Iterator[dict[str, Any]]:
    """The same; SmokeFailed for an error among them, ConnectionError where none says that it is the last one."""
    finished = ""
    for chunk in chunks:
        _no_error(chunk, where)
        finished = finished or _chat.finished(chunk)
        yield chunk
    if not finished:
        raise ConnectionError("it stops half-way")


def _no_error(told: dict[str, Any], where: str) -> None:
    """SmokeFailed for an answer that is an error, though its status says that all is well."""
    if told.get("error") or told.get("object") == "error":
        message = part(told, "error").get("message") or told.get("message") or told.get("error") or "without a word"
        raise SmokeFailed(f"{where}: the server gives up", evidence=str(message)[:1500], remedy=SEEN)


def _events(pieces: Iterator[bytes], where: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events, up to [DONE]."""
    event = b""
    for line in _lines(pieces, where):
        name, _, value = line.partition(b":")
        if name in (b"data", b"error"):
            event = event + b"\n" + value if event else value
            if event.strip() == b"[DONE]":
                return
            if found := parsed(event):
                event = b""
                yield {"error": found} if name == b"error" else found
        if event and (not line or len(event) > LONGEST):  # an event may have several lines of data; a blank one ends it
            break
    if event:
        words = event.decode(errors="replace")[:1500]
        raise SmokeFailed(f"{where}: an event of the stream is no JSON object", evidence=words)


def parsed(text: str | bytes) -> dict[str, Any] | None:
    """A JSON object; None where it is none. What is no number in JSON either (NaN, 1e999) stays a word."""
    try:
        found = json.loads(text, parse_constant=str, parse_float=_number)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _number(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def _lines(pieces: Iterator[bytes], where: str) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *lines, rest = ENDS.split(rest + piece)
        yield from lines
        if len(rest) > LONGEST:
            raise SmokeFailed(f"{where}: an event of the stream does not end", evidence=repr(rest[:200]))
    yield rest.rstrip(b"\r")
