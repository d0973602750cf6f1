"""What a hand-over puts into shared memory: which tensors, where they lie, and how they are named for who maps them."""

from __future__ import annotations

import contextlib
import io
import json
import mmap
import os
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy import host
from deploy.engines._sglang_swap import API
from deploy.host.header import read
from deploy.host.swap_pickle import TORCH
from deploy.host.swap_shm import Piece, Unfit, Weight, pieces, sweep, unlike, weights
from tests import checkpoints
from tests.project import EXAMPLES

MAPS = ("d2t", "t2d", "embed_tokens.weight")
SMALL = {"c": ("F8_E4M3", []), "a": ("F32", [2, 3]), "b": ("BF16", [5]), "d": ("I64", [0, 4]), "e": ("BOOL", [3])}


def all_of(folder: Path, *left_out: str) -> set[str]:
    """The names of its tensors, but for some."""
    return set(read(folder / "model.safetensors").tensors) - set(left_out)


def draft(folder: Path, tensors: checkpoints.Tensors = SMALL, data: bytes | None = None) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    checkpoints.weights(folder / "model.safetensors", tensors, data)
    return folder


class Torch(pickle.Unpickler):
    """Unpickles without torch, by the globals that SGLang's SafeUnpickler lets in and no others."""

    CALLED = ("rebuild_tensor", "rebuild_typed_storage", "rebuild_storage_filename")

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch.multiprocessing.reductions" and name in self.CALLED:
            return lambda *words: (name, *words)
        kinds = [torch for torch, _ in TORCH.values()]
        assert (module, name) in {
            ("torch.storage", "UntypedStorage"),
            *(("torch", kind) for kind in ["Tensor", *kinds]),
        }
        return f"{module}.{name}"


def mapped(pickled: bytes) -> dict[str, tuple[str, Any, bytes]]:
    """{name: (dtype, shape, bytes)} as the reader of a pickle finds them in the memory that it names."""
    found = {}
    sizes = dict(TORCH.values())
    for name, (how, kind, typed, (offset, shape, strides, grad)) in Torch(io.BytesIO(pickled)).load():
        assert (how, kind, typed[0], grad) == ("rebuild_tensor", "torch.Tensor", "rebuild_typed_storage", False)
        storage, dtype = typed[1], typed[2].removeprefix("torch.")
        assert storage[:3] == ("rebuild_storage_filename", "torch.storage.UntypedStorage", b"")
        path, size = Path("/dev/shm") / storage[3].decode()[1:], storage[4]
        count = 1
        for length, stride in reversed(list(zip(shape, strides, strict=True))):
            assert stride == max(count, 1) or not length
            count *= length
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
            assert len(memory) == 64 + size
            assert struct.unpack_from("i", memory)[0] > 1 << 20, "the reader would count it down to its end"
            begin = 64 + offset * sizes[dtype]
            found[name] = (dtype, tuple(shape), memory[begin : begin + count * sizes[dtype]])
    return found


def test_what_is_mapped_is_what_the_file_holds() -> None:
    piece = Piece(weights(str(EXAMPLES / "draft"), all_of(EXAMPLES / "draft", *MAPS)))
    with piece.handed("torch_1_2_3") as pickled:
        found = mapped(pickled)
    path = EXAMPLES / "draft" / "model.safetensors"
    header, content = read(path), path.read_bytes()
    held = {name: tensor for name, tensor in header.tensors.items() if name not in MAPS}
    whole = content[header.data_start :]
    assert found == {
        name: (TORCH[tensor.dtype][0], tensor.shape, whole[tensor.start : tensor.end]) for name, tensor in held.items()
    }
    assert piece.taken == sum(len(told) for *_, told in found.values())
    assert not Path("/dev/shm/torch_1_2_3").exists()


def test_every_dtype_and_shape_has_its_place(tmp_path: Path) -> None:
    data = bytes(range(24 + 10 + 1 + 0 + 3))
    with Piece(weights(str(draft(tmp_path / "d", data=data)), SMALL)).handed("torch_1_2_4") as pickled:
        assert mapped(pickled) == {
            "c": ("float8_e4m3fn", (), data[:1]),
            "a": ("float32", (2, 3), data[1:25]),
            "b": ("bfloat16", (5,), data[25:35]),
            "d": ("int64", (0, 4), b""),
            "e": ("bool", (3,), data[35:]),
        }


def test_shards_are_those_of_the_index(tmp_path: Path) -> None:
    shards = {"model-1-of-2.safetensors": {"a": ("U8", [4])}, "model-2-of-2.safetensors": {"b": ("U8", [8])}}
    folder = checkpoints.sharded(tmp_path / "d", shards)
    checkpoints.weights(folder / "old.safetensors", {"a": ("U8", [9])})
    assert {name: weight.size for name, weight in weights(str(folder), "ab").items()} == {"a": 4, "b": 8}


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size - 5)


def _twice(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder / "other.safetensors")


def _lost(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "x.safetensors"}}))


def _no_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("{}")


def _packed(folder: Path) -> None:
    checkpoints.weights(folder / "model.safetensors", {"a": ("F4", [2])})


SPOILT: list[tuple[Callable[[Path], Any], str]] = [
    (_pickled, "no .safetensors"), (_cut, "truncated"), (_twice, "has c twice"), (_lost, "lacks x.safetensors"),
    (_no_index, "no index"), (_packed, "F4"), (shutil.rmtree, "does not exist"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "words"), SPOILT, ids=[words for _, words in SPOILT])
def test_what_cannot_be_told_for_sure_is_refused(tmp_path: Path, spoil: Callable[[Path], Any], words: str) -> None:
    spoil(draft(tmp_path / "d"))
    with pytest.raises(Unfit) as caught:
        weights(str(tmp_path / "d"), SMALL)
    assert words in str(caught.value)


def test_two_drafts_are_held_against_each_other(tmp_path: Path) -> None:
    first, same = (weights(str(draft(tmp_path / name)), SMALL) for name in ("1", "2"))
    assert unlike(first, same) == ""
    assert "e is in the loaded draft alone" in unlike({n: w for n, w in first.items() if n != "e"}, same)
    wide = weights(str(draft(tmp_path / "3", {**SMALL, "a": ("F32", [3, 3])})), SMALL)
    assert unlike(wide, first) == "a is F32 [3, 3], and was F32 [2, 3]"


def test_pieces_are_no_larger_than_they_may_be_but_for_one_tensor() -> None:
    tensors = {
        name: Weight("", 0, size, "U8", (size,)) for name, size in zip("abcdef", (3, 3, 9, 1, 5, 4), strict=True)
    }
    assert [list(piece.tensors) for piece in pieces(tensors, 6)] == [["a", "b"], ["c"], ["d", "e"], ["f"]]


def test_a_piece_has_no_name_until_it_is_handed_over(tmp_path: Path) -> None:
    before = set(os.listdir("/dev/shm"))  # noqa: PTH208
    piece = Piece(weights(str(draft(tmp_path / "d")), SMALL))
    piece.fill()
    made = {name for name in set(os.listdir("/dev/shm")) - before if name.startswith("torch_")}  # noqa: PTH208
    assert not made
    piece.close()


def test_a_sweep_takes_what_has_the_prefix_and_nothing_else() -> None:
    ours, other = Path("/dev/shm/torch_1_77_1"), Path("/dev/shm/torch_1_778_1")
    try:
        for path in (ours, other):
            path.touch()
        for prefix in ("torch_1_77_", "", "/etc/", "torch_*"):
            sweep(prefix)
        assert (ours.exists(), other.exists()) == (False, True)
    finally:
        for path in (ours, other):
            path.unlink(missing_ok=True)


# ---- the program, before a server is met -------------------------------------------------------------------------


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Write down a process as the server of a folder, started by such words and with such an environment."""
    with contextlib.ExitStack() as stack:

        def start(*words: str, **env: str) -> None:
            argv = [*words, "sh", "-c", "echo; exec sleep 60"]
            environ = {**{name: value for name, value in os.environ.items() if not name.startswith("T")}, **env}
            process = stack.enter_context(
                subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, start_new_session=True)
            )
            stack.callback(process.kill)
            assert process.stdout
            process.stdout.readline()  # it is what it will be
            (tmp_path / "pid").write_text(f"{process.pid} {ticks(process.pid)} boot\n")

        yield start


def ticks(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]


def asked(folder: Path, new: Path, old: Path, /, *words: str, **more: Any) -> dict[str, Any]:
    """What it says; nobody listens where it would hand over. `words` start it in another surrounding."""
    (folder / "lock").write_text("ours\n")
    request = {
        "lock": str(folder / "lock"), "token": "ours", "server": str(folder), "new": "r", "url": "http://127.0.0.1:1",
        "keys": [], "ranks": 1, "draft": str(new), "before": str(old), "api": API.to_json(),
        "sent": dict(zip(SMALL, SMALL, strict=True)),
        "links": [], "expected": None, **more,
    }  # fmt: skip
    argv = [*words, sys.executable, "-I", "-c", host.source("swap")]
    done = subprocess.run(argv, input=json.dumps(request), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "nobody listens": ({}, "kept", "cannot be reached"),
    "the lock is another's": ({"token": "other"}, "lapsed", "nothing was begun"),
    "no lock at all": ({"lock": "/nonexistent/lock"}, "lapsed", "nothing was begun"),
    "there is no such draft": ({"draft": "/nonexistent"}, "kept", "does not exist"),
    "there is no way back": ({"before": "/nonexistent"}, "kept", "does not exist"),
    "its folder is gone": ({"server": "/nonexistent"}, "kept", "does not tell which process"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_ends_before_anything_is_touched(tmp_path: Path, serving: Callable[..., None], name: str) -> None:
    serving()
    more, outcome, words = REFUSED[name]
    one = draft(tmp_path / "1")
    told = asked(tmp_path, one, one, **more)
    assert (told["outcome"], words in told["why"]) == (outcome, True), told
    assert {path.name for path in tmp_path.iterdir()} == {"1", "lock", "pid"}


def test_shapes_that_differ_are_never_sent(tmp_path: Path, serving: Callable[..., None]) -> None:
    serving()
    one, other = draft(tmp_path / "1"), draft(tmp_path / "2", {**SMALL, "a": ("F32", [3, 3])})
    told = asked(tmp_path, other, one)
    assert (told["outcome"], told["why"]) == ("kept", "a is F32 [3, 3], and was F32 [2, 3]")


ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="another /dev/shm needs root")


def small(size: str) -> tuple[str, ...]:
    """Words that start a program with so much shared memory of its own."""
    return ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size={size} none /dev/shm && exec "$@"', "sh")


@ROOT
@pytest.mark.parametrize(("size", "words"), [("1m", "1 are free"), ("16m", "cannot be reached")])
def test_shared_memory_that_is_too_small_is_told_before(
    tmp_path: Path, serving: Callable[..., None], size: str, words: str
) -> None:
    one = draft(tmp_path / "1", {"a": ("F32", [1 << 20])})
    # both in the same small one, by way of a process that has it
    serving(*small(size))
    pid = (tmp_path / "pid").read_text().split()[0]
    told = asked(tmp_path, one, one, "nsenter", "--mount", "--target", pid)
    assert (told["outcome"], words in told["why"]) == ("kept", True), told


# What kills a server that is handed something: (words that start it, its environment), why it is not.
KILLING: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "a path of its temporary files that torch has no room for": ((), {"TMPDIR": f"/{'t' * 73}"}, "more than 73 bytes"),
    "no temporary files": ((), {"TMP": "/nonexistent"}, "cannot write"),
    "the first variable counts": ((), {"TMPDIR": "/tmp", "TEMP": "/nonexistent"}, "cannot be reached"),
    "the longest path that there is room for": ((), {"TMPDIR": "/" * 69 + "/tmp"}, "cannot be reached"),
}


@pytest.mark.parametrize("name", KILLING)
def test_a_server_that_would_die_of_it_is_left_alone(tmp_path: Path, serving: Callable[..., None], name: str) -> None:
    words, env, why = KILLING[name]
    serving(*words, **env)
    one = draft(tmp_path / "1")
    told = asked(tmp_path, one, one)
    assert (told["outcome"], why in told["why"]) == ("kept", True), told


@ROOT
def test_a_server_with_shared_memory_of_its_own_is_left_alone(tmp_path: Path, serving: Callable[..., None]) -> None:
    serving(*small("16m"))
    one = draft(tmp_path / "1")
    told = asked(tmp_path, one, one)
    assert (told["outcome"], "as in a container" in told["why"]) == ("kept", True), told


def test_another_process_under_its_pid_is_not_the_server(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text(f"{os.getpid()} 1 boot\n")
    one = draft(tmp_path / "1")
    assert "process is gone" in asked(tmp_path, one, one)["why"]
