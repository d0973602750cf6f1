"""One HTTP answer as its bytes arrive: its status, its body with times, and where it ends."""

from __future__ import annotations

HEAD = 64 << 10  # bytes; no server's headers are longer
LONGEST = 128 << 20  # bytes of an answer that is read: old engines tell its text whole with each token, and all is kept
HEX = frozenset(b"0123456789abcdefABCDEF")


def size_of(line: bytes) -> int:
    """Of a chunk, from its first line; ValueError where it says none."""
    digits = line.partition(b";")[0].strip()
    if not digits or not HEX.issuperset(digits):
        raise ValueError(f"no size of a chunk: {line[:100]!r}")
    return int(digits, 16)


class Answer:
    """`pieces` are (time, bytes) of its body, without the transfer's own framing.

    ValueError from `feed` where it is no HTTP.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[tuple[float, bytes]] = []
        self.done = self.heard = False
        self._rest, self._size = b"", 0
        self._chunked = self._trailing = False
        self._left: int | None = None

    @property
    def reusable(self) -> bool:
        """Whether its connection may be asked again."""
        return self.done and "close" not in self.headers.get("connection", "").lower() and self._left is not None

    def feed(self, now: float, data: bytes) -> None:
        """Take what came at that time."""
        self.heard = True
        self._size += len(data)
        if self._size > LONGEST:
            self.pieces.clear()  # nobody reads them
            raise ValueError(f"an answer of more than {LONGEST >> 20} MiB")
        if not self.status:
            self._rest += data
            if not self._begun():
                return
            data, self._rest = self._rest, b""
        body = self._unchunked(data) if self._chunked else self._counted(data)
        if body:
            self.pieces.append((now, body))

    def closed(self) -> None:
        """The connection was closed, which is the end of a body that has no length."""
        self.done = self.done or (self.status > 0 and self._left is None)

    def _begun(self) -> bool:
        """Whether its head is whole; then what is left of `_rest` is of the body."""
        while True:
            head, found, rest = self._rest.partition(b"\r\n\r\n")
            if not found:
                if len(self._rest) > HEAD:
                    raise ValueError("its headers do not end")
                return False
            first, *lines = head.decode("latin-1").split("\r\n")
            words = first.split(None, 2)
            if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdigit():
                raise ValueError(f"no HTTP: {first[:100]!r}")
            self._rest = rest
            if not words[1].startswith("1"):  # 100: another head follows
                break
        pairs = (line.partition(":") for line in lines)
        self.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if words[0] == "HTTP/1.0":
            self.headers.setdefault("connection", "close")
        self.status = int(words[1])
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length", "")
        self._left = 0 if self._chunked else int(length) if length.isdigit() else None
        self.done = self._left == 0 and not self._chunked
        return True

    def _counted(self, data: bytes) -> bytes:
        if self._left is None:
            return data
        data = data[: self._left]
        self._left -= len(data)
        self.done = self._left == 0
        return data

    def _unchunked(self, data: bytes) -> bytes:
        """A chunk is its size in hexadecimal, a line's end, so many bytes, and a line's end."""
        self._rest += data
        body = b""
        while self._rest and not self.done:
            if not self._left:
                line, found, rest = self._rest.partition(b"\r\n")
                if not found:
                    break
                self._rest = rest
                if self._trailing:
                    self.done = not line
                    continue
                size = size_of(line)
                self._trailing = size == 0
                self._left = size + 2 if size else 0
                continue
            taken = self._rest[: self._left]
            body += taken[: max(self._left - 2, 0)]
            self._rest = self._rest[self._left :]
            self._left -= len(taken)
        return body
