"""What a look at some of the weights themselves tells: a part of programs, no program.

Of each tensor the same elements are looked at, wherever it lies: all of a short one, of a long one pieces that are
spread evenly. So two tensors can be compared by the digests of what was looked at. Standard library, Python 3.8.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from operator import mul
from typing import Any

WHOLE, PLACES, EACH = 16384, 16, 512  # elements: all of up to so many, else so many pieces of so many
BLOCK_READ = 8 << 20
PLAIN = {
    "F32": "f", "F64": "d", "I64": "q", "I32": "i", "I16": "h", "I8": "b",
    "U64": "Q", "U32": "I", "U16": "H", "U8": "B", "BOOL": "B",
}  # fmt: skip
# dtype: bits of exponent and mantissa, and what is added to the exponent; those without infinities say NaN otherwise
SMALL_FLOATS = {"F8_E5M2": (5, 2, 15), "F8_E4M3": (4, 3, 7), "F8_E5M2FNUZ": (5, 2, 16), "F8_E4M3FNUZ": (4, 3, 8)}
# dtype: (bytes of an element, its high byte's values that no finite number has, or only numbers beyond 1e38)
SUSPECT = {
    "F64": (8, b"\x7f\xff"),
    "F32": (4, b"\x7f\xff"),
    "BF16": (2, b"\x7f\xff"),
    "F16": (2, bytes([*range(0x7C, 0x80), *range(0xFC, 0x100)])),
    "F8_E5M2": (1, bytes([*range(0x7C, 0x80), *range(0xFC, 0x100)])),
    "F8_E4M3": (1, b"\x7f\xff"),
    "F8_E5M2FNUZ": (1, b"\x80"),
    "F8_E4M3FNUZ": (1, b"\x80"),
}


def statistics(
    path: str, data: int, tensors: Mapping[str, Sequence[Any]], until: float, *, deep: bool
) -> dict[str, list[Any]]:
    """{name: [seen, mean, std, least, most, zeros, not_finite, kurtosis, searched, digest]} of a file's tensors.

    Short ones come first; no new one is begun once time.monotonic() is past `until`. With `deep` every element is
    searched for NaN and infinity, and what seems to be all zeros is read to its end.
    """
    found = {}
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for name, line in sorted(tensors.items(), key=lambda item: item[1][3] - item[1][2]):
            content = b"".join(_sample(file, data, line)) if readable(line[0]) else b""
            numbers = _decoded(line[0], content)
            if numbers:
                told = [*_moments(numbers), len(numbers), hashlib.sha256(content).hexdigest()]
                found[name] = _search(file, data, line, told) if deep else told
            if time.monotonic() > until:
                break
    finally:
        os.close(file)
    return found


def readable(dtype: str) -> bool:
    """Whether values of this type are understood: those of whole bytes are."""
    return dtype in PLAIN or dtype in SUSPECT


def digests(path: str, data: int, tensors: Mapping[str, Sequence[Any]], *, deep: bool) -> dict[str, str]:
    """The sha256 of the same sample of each tensor, or of all its bytes."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    found = {}
    try:
        for name, line in tensors.items():
            sha256 = hashlib.sha256()
            for part in _blocks(file, data, line) if deep else _sample(file, data, line):
                sha256.update(part)
            found[name] = sha256.hexdigest()
    finally:
        os.close(file)
    return found


def _sample(file: int, data: int, line: Sequence[Any]) -> Iterator[bytes]:
    start, end = line[2], line[3]
    count = math.prod(line[1])
    width = (end - start) // count if count else 0
    if count <= WHOLE or not width:
        yield os.pread(file, min(end - start, WHOLE * 8), data + start)
        return
    for number in range(PLACES):
        yield os.pread(file, EACH * width, data + start + (count - EACH) * number // (PLACES - 1) * width)


def _blocks(file: int, data: int, line: Sequence[Any]) -> Iterator[bytes]:
    at, end = data + line[2], data + line[3]
    while at < end:
        part = os.pread(file, min(BLOCK_READ, end - at), at)
        if not part:  # a file that is cut off; its header tells
            return
        yield part
        at += len(part)


def _decoded(dtype: str, content: bytes) -> Sequence[float]:
    """Numbers of any dtype but those of less than a byte; little-endian, as the format is."""
    if dtype in PLAIN:
        numbers = array(PLAIN[dtype])
        numbers.frombytes(content[: len(content) // numbers.itemsize * numbers.itemsize])
        return numbers
    if dtype == "BF16":
        wide = bytearray(len(content) // 2 * 4)
        wide[2::4], wide[3::4] = content[0 : len(content) // 2 * 2 : 2], content[1::2]
        return array("f", bytes(wide))
    if dtype == "F16":
        return struct.unpack(f"<{len(content) // 2}e", content[: len(content) // 2 * 2])
    if dtype in SMALL_FLOATS:
        table = [_small_float(dtype, byte) for byte in range(256)]
        return [table[byte] for byte in content]
    return ()


def _small_float(dtype: str, byte: int) -> float:
    """A float of 8 bits; the bits' meaning is that of the OCP 8-bit floats and of their FNUZ kin."""
    exponent_bits, bits, bias = SMALL_FLOATS[dtype]
    sign, exponent, mantissa = byte >> 7, byte >> bits & (1 << exponent_bits) - 1, byte & (1 << bits) - 1
    if byte in SUSPECT[dtype][1]:
        return math.inf * (1 - 2 * sign) if dtype == "F8_E5M2" and not mantissa else math.nan
    value = (mantissa / (1 << bits) + (exponent > 0)) * 2.0 ** (max(exponent, 1) - bias)
    return -value if sign else value


def _moments(numbers: Sequence[float]) -> list[Any]:
    """[seen, mean, std, least, most, zeros, not_finite, kurtosis]; what is not finite is counted and left out."""
    finite, seen = numbers, len(numbers)
    if not math.isfinite(sum(map(mul, numbers, numbers))):
        finite = [number for number in numbers if math.isfinite(number)]
    count = len(finite)
    if not count:
        return [seen, 0.0, 0.0, 0.0, 0.0, 0, seen, 0.0]
    mean = sum(finite) / count
    squares = [(number - mean) * (number - mean) for number in finite]
    variance = sum(squares) / count
    try:
        kurtosis = sum(map(mul, squares, squares)) / count / variance / variance if variance else 0.0
    except ZeroDivisionError:  # a variance whose square is below all numbers
        kurtosis = 0.0
    zeros = finite.count(0)
    return [seen, mean, math.sqrt(variance), min(finite), max(finite), zeros, seen - count, kurtosis]


def _search(file: int, data: int, line: Sequence[Any], told: list[Any]) -> list[Any]:
    """The same with every element searched: only an element whose high byte is suspect is decoded."""
    dtype, searched, not_finite, zero = line[0], 0, 0, True
    width, suspect = SUSPECT.get(dtype, (0, b""))
    harmless = bytes(byte for byte in range(256) if byte not in suspect)
    for block in _blocks(file, data, line):
        signed = zero and width and 0x80 not in suspect
        signs = block[width - 1 :: width].count(0x80) if signed else 0  # of -0.0
        zero = zero and block.count(0) + signs == len(block)
        searched += len(block)
        if width and block[width - 1 :: width].translate(None, harmless):
            not_finite += sum(not math.isfinite(number) for number in _decoded(dtype, block))
    count = math.prod(line[1])
    seen, zeros = told[0], told[5]
    if zeros == seen and not zero:
        seen += 1  # one that is no zero has been seen
    return [seen, *told[1:6], not_finite, told[7], searched * count // max(line[3] - line[2], 1), told[9]]
