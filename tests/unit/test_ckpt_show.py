"""`deploy ckpt show`: what is folded, what is summed up, what is told, and what it costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy import host
from deploy.host import outline
from tests.checkpoints import experts, sharded, weights
from tests.project import EXAMPLES, Project

LAST = "model-00004-of-00004.safetensors"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project", {})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Four shards of experts, and one tensor of its own."""
    shards = {f"model-0000{n}-of-00004.safetensors": experts(range(3 * n - 3, 3 * n), 8) for n in (1, 2, 3, 4)}
    shards[LAST] = {**shards[LAST], "lm_head.weight": ("F32", [100, 64])}
    text = {"hidden_size": 64, "num_hidden_layers": 12}
    return sharded(tmp_path / "model", shards, {"architectures": ["Big"], "hidden_size": 9, "text_config": text})


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.partition("\n\n")[0].splitlines()[1:]]


def test_a_small_checkpoint_has_a_row_for_each_tensor(project):
    done = project.run("ckpt", "show", str(EXAMPLES / "draft"))
    assert (done.code, done.err) == (0, "")
    table = rows(done.out)
    assert table[1] == ["fc.weight", "F32", "[128,", "384]", "196,608", "model.safetensors"]
    assert len(table) == 15
    for line in (
        "total    15 tensors, 263.4k parameters, 1.053 MB in 1 file",
        "  F32    13 tensors, 262.7k parameters, 1.051 MB",
        'config   architectures ["LlamaForCausalLMEagle3"]',
        "         draft_vocab_size 256",
        '         eagle_config {"eagle_aux_hidden_state_layer_ids": [0, 2, 4], "use_aux_hidden_state": true}',
    ):
        assert line in done.out.splitlines()


def test_rows_that_differ_only_in_numbers_are_one(project, model):
    done = project.run("ckpt", "show", str(model))
    assert done.code == 0, done.err
    fold = "model.layers.{0..11}.mlp.experts.{0..7}.%s_proj.weight x 96 BF16 [64, 64] 786,432 %s and 3 more"
    first = "model-00001-of-00004.safetensors"
    assert [" ".join(line.split()) for line in done.out.splitlines()[1:5]] == [
        *(fold % (part, first) for part in ("gate", "up", "down")),
        f"lm_head.weight F32 [100, 64] 25,600 {LAST}",
    ]
    assert "total    289 tensors, 1.186M parameters, 2.385 MB in 4 files" in done.out
    assert "index    289 tensors in 4 files" in done.out
    assert "hidden_size 9" in done.out
    assert "num_hidden_layers 12" in done.out


def test_all_rows_are_shown_where_that_is_wanted(project, model):
    done = project.run("ckpt", "show", str(model), "--all")
    assert len(rows(done.out)) == 289
    assert "model.layers.11.mlp.experts.7.down_proj.weight" in done.out
    assert done.out.partition("\n\n")[2] == project.run("ckpt", "show", str(model)).out.partition("\n\n")[2]


def test_json_has_every_tensor(project, model):
    shown = project.run("ckpt", "show", str(model), "--json").json
    assert len(shown["tensors"]) == shown["totals"]["tensors"] == shown["index"]["tensors"] == 289
    assert shown["tensors"][-1] == {
        "name": "lm_head.weight", "dtype": "F32", "shape": [100, 64], "start": 589824, "end": 615424, "file": LAST,
    }  # fmt: skip
    assert shown["totals"]["dtypes"]["F32"] == {"tensors": 1, "parameters": 6400, "bytes": 25600}


def test_a_gguf_is_shown(project):
    done = project.run("ckpt", "show", str(EXAMPLES / "draft.gguf"))
    assert done.code == 0, done.err
    assert len(rows(done.out)) == 14
    assert "eagle3.target_layers [1, 3, 5]" in done.out


def test_what_is_wrong_with_the_files_is_told_beside_the_table(project, model):
    content = (model / LAST).read_bytes()
    (model / LAST).write_bytes(content[:-10])
    (model / "model-00002-of-00004.safetensors").unlink()
    for words in ((), ("--all",)):
        done = project.run("ckpt", "show", str(model), *words)
        assert done.code == 0
        assert f"wrong    {LAST} byte {len(content) - 10}: is truncated: its tensors need 615424 bytes" in done.out
        assert "wrong    model-00002-of-00004.safetensors: is named by the index, missing" in done.out
        assert f"-> deploy ckpt check {model}" in done.out


def test_a_shard_that_holds_other_tensors_than_the_index_says_is_told(project, model):
    weights(model / LAST, experts(range(9, 12), 7))
    assert f"wrong    {LAST}: does not hold what the index says of it" in project.run("ckpt", "show", str(model)).out


def test_a_shard_that_cannot_be_read_is_told_and_the_others_are_shown(tmp_path):
    names = [f"model-{n:05}-of-00032.safetensors" for n in range(1, 33)]
    folder = sharded(tmp_path / "model", {name: {f"{n}.weight": ("U8", [4])} for n, name in enumerate(names)})
    (folder / names[7]).unlink()
    (folder / names[7]).symlink_to("gone")
    (folder / names[9]).write_bytes(b"x")
    found = outline.outline(str(folder))
    assert [row[0] for row in found["rows"]] == [f"{n}.weight" for n in range(32) if n not in (7, 9)]
    told = [(what, file) for what, file, _ in found["problems"] if "index" not in what]
    assert told == [
        ("cannot be read: No such file or directory", names[7]),
        ("is 1 bytes long, too short for a header length (8 bytes)", names[9]),
    ]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"weight_map": [', b"\xff\xfe"])
def test_an_index_that_says_nothing_is_told(model, content):
    (model / "model.safetensors.index.json").write_bytes(content)
    found = outline.outline(str(model))
    assert ["maps no tensor to a file", "model.safetensors.index.json", 0] in found["problems"]
    assert sum(row[3] for row in found["rows"]) == 289


def test_an_index_is_read_in_pieces_as_a_whole(tmp_path, model):
    path = model / "model.safetensors.index.json"
    names = json.loads(path.read_text())["weight_map"]
    path.write_text(json.dumps({"weight_map": names}, indent=4000))  # several pieces
    assert path.stat().st_size > 2 * outline.CHUNK
    assert outline.outline(str(model))["index"] == [289, 4]
    assert outline.outline(str(model))["problems"] == []


def test_names_of_a_foreign_file_do_not_steer_the_terminal(project, tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["\\u001b[2J\\u202eevil"]}')
    weights(tmp_path / "model.safetensors", {"\x1b]0;owned\x07a\nb.weight": ("\u202eBF16"[1:], [2])})
    for words in ((), ("--all",)):
        out = project.run("ckpt", "show", str(tmp_path), *words).out
        assert not {"\x1b", "\x07", "\u202e"} & set(out)
        assert rows(out)[0][:2] == ["a", "b.weight"]


@pytest.mark.parametrize("path", ["nowhere", "gpu9:/nowhere"])
def test_where_nothing_is_nothing_is_shown(project, path):
    done = project.run("ckpt", "show", path)
    assert (done.code, done.out) == (2, "")
    assert "does not exist" in done.err


FOLDED: list[tuple[dict[str, Any], list[tuple[str, int]]]] = [
    ({f"a.{n}.w": ("U8", [1]) for n in range(70)}, [("a.{0..69}.w", 70)]),
    ({f"a.{n}.w": ("U8", [1 + n // 69]) for n in range(70)}, [("a.{0..68}.w", 69), ("a.69.w", 1)]),  # of another shape
    ({f"a{{}}.{n}": ("U8", [1]) for n in range(65)}, [("a{}.{}", 65)]),  # names with braces of their own
    ({f"x.{n}.7": ("U8", [1]) for n in range(65)}, [("x.{0..64}.7", 65)]),
    ({f"a\n{n}": ("U8", [1]) for n in range(65)}, [("a {0..64}", 65)]),
]


@pytest.mark.parametrize(("tensors", "expected"), FOLDED)
def test_only_what_is_alike_is_folded(tmp_path, tensors, expected):
    (tmp_path / "config.json").write_text("{}")
    weights(tmp_path / "model.safetensors", tensors)
    assert [(row[0], row[3]) for row in outline.outline(str(tmp_path))["rows"]] == expected


PYTHONS = sorted(Path.home().glob(".pyenv/versions/3.[89].*/bin/python")) or [Path(sys.executable)]
PEAK = "\nprint(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"  # KiB; ru_maxrss is our own


def test_a_model_four_times_as_large_takes_no_more_memory(tmp_path):
    """By the oldest Python of this machine, as on a host. All headers and the index together would be 60 MB more."""
    peaks = []
    for shards in (16, 64):
        names = {
            f"model-{n:05}-of-{shards:05}.safetensors": experts(range(n, n + 1), 500) for n in range(1, shards + 1)
        }
        folder = sharded(tmp_path / str(shards), names)
        argv = [str(PYTHONS[0]), "-I", "-c", host.source("outline") + PEAK, str(folder)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        answer, peak = done.stdout.splitlines()
        assert [row[3] for row in json.loads(answer)["rows"]] == [500 * shards] * 3
        assert json.loads(answer)["problems"] == []
        peaks.append(int(peak))
    assert peaks[1] < peaks[0] + 5000  # KiB
