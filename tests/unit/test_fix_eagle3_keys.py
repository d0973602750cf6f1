from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from array import array
from pathlib import Path

import pytest

from deploy import hooks, host
from deploy.host import header
from deploy.host.rewrite import rewrite
from tests.project import PATIENCE

ROOT = Path(__file__).parents[2]
HOOK = ROOT / "hooks/fix_eagle3_keys"
DRAFT = ROOT / "examples/tiny-eagle3/draft"
PORTABLE = header.read(DRAFT / "model.safetensors").tensors


def environment(tmp_path: Path, draft: Path | str) -> dict[str, str]:
    """As on a host where the tool is not installed: the hook and its library alone in a folder."""
    lib = tmp_path / "lib"
    lib.mkdir(exist_ok=True)
    shutil.copy(HOOK, lib)
    for name, part in hooks.LIBRARY.items():
        (lib / f"{name}.py").write_text(host.source(part))
    return {
        "PATH": os.environ["PATH"],
        "DEPLOY_LIB": str(lib),
        "DEPLOY_DRAFT": str(draft),
        "DEPLOY_RELEASES": str(tmp_path / "releases"),
    }


def hook(tmp_path: Path, draft: Path | str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**environment(tmp_path, draft), **variables}
    argv = [sys.executable, "-I", f"{env['DEPLOY_LIB']}/fix_eagle3_keys"]
    return subprocess.run(argv, env=env, input="{}", capture_output=True, text=True, check=False, timeout=PATIENCE)


def fixed(tmp_path: Path, draft: Path | str) -> Path:
    done = hook(tmp_path, draft)
    assert done.returncode == 0, done.stderr
    return Path(json.loads(done.stdout)["draft"])


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def spelled(tmp_path: Path, old: str, new: str, *, top: str = "") -> Path:
    """The trained draft with its layer's prefix replaced, and `top` before every name but the layer's."""
    draft = tmp_path / "draft"
    shutil.copytree(DRAFT, draft)
    rename = {name: name.replace(old, new) if old in name else top + name for name in PORTABLE}
    rewrite(DRAFT / "model.safetensors", draft / "model.safetensors", rename)
    return draft


SPELLINGS = [
    ("layers.0.", "midlayer.", "layers.0.", ""),
    ("model.layers.0.", "midlayer.", "model.layers.0.", "model."),
    ("model.midlayer.", "midlayer.", "model.midlayer.", "model."),
    ("prefix outside of the layer only", "midlayer.", "midlayer.", "model."),
]


@pytest.mark.parametrize(("old", "new", "top"), [case[1:] for case in SPELLINGS], ids=[case[0] for case in SPELLINGS])
def test_every_spelling_becomes_the_portable_one(tmp_path, old, new, top):
    draft = spelled(tmp_path, old, new, top=top)
    before = (draft / "model.safetensors").read_bytes()
    folder = fixed(tmp_path, draft)
    found = header.read(folder / "model.safetensors")
    assert found.tensors == PORTABLE
    for name in PORTABLE:
        original = header.read(DRAFT / "model.safetensors")
        assert header.load(folder / "model.safetensors", found, name) == header.load(
            DRAFT / "model.safetensors", original, name
        )
    assert (folder / "config.json").read_bytes() == (DRAFT / "config.json").read_bytes()
    assert folder.parent == tmp_path / "releases"
    assert (draft / "model.safetensors").read_bytes() == before


def test_twice_gives_the_same_folder_and_writes_nothing(tmp_path):
    draft = spelled(tmp_path, "midlayer.", "layers.0.")
    folder = fixed(tmp_path, draft)
    written = (folder / "model.safetensors").stat()
    assert fixed(tmp_path, draft) == folder
    assert (folder / "model.safetensors").stat() == written
    assert hook(tmp_path, folder).stdout == ""


def test_another_draft_gets_another_folder(tmp_path):
    draft = spelled(tmp_path, "midlayer.", "layers.0.")
    first = fixed(tmp_path, draft)
    os.utime(draft / "model.safetensors", ns=(0, 0))
    assert fixed(tmp_path, draft) != first


def test_a_draft_behind_a_link_is_the_same_draft(tmp_path):
    draft = spelled(tmp_path, "midlayer.", "layers.0.")
    (tmp_path / "link").symlink_to(draft)
    assert fixed(tmp_path, tmp_path / "link") == fixed(tmp_path, draft)


def test_a_single_weights_file_brings_its_config(tmp_path):
    draft = spelled(tmp_path, "midlayer.", "layers.0.")
    shutil.copy(draft / "model.safetensors", draft / "older.safetensors")
    folder = fixed(tmp_path, draft / "model.safetensors")
    assert visible(folder) == ["config.json", "model.safetensors"]


def test_a_sharded_drafts_index_is_renamed_too(tmp_path):
    draft = tmp_path / "draft"
    draft.mkdir()
    weight_map = {}
    for number, name in enumerate(["layers.0.hidden_norm.weight", "layers.0.mlp.up_proj.weight", "fc.weight"]):
        text = json.dumps({name: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
        (draft / f"{number}.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"x")
        weight_map[name] = f"{number}.safetensors"
    index = {"metadata": {"total_size": 3}, "weight_map": weight_map}
    (draft / "model.safetensors.index.json").write_text(json.dumps(index))
    (draft / "model.safetensors.index.json").chmod(0o444)
    folder = fixed(tmp_path, draft)
    renamed = json.loads((folder / "model.safetensors.index.json").read_text())
    assert renamed["metadata"] == {"total_size": 3}
    assert renamed["weight_map"] == {
        "midlayer.hidden_norm.weight": "0.safetensors",
        "midlayer.mlp.up_proj.weight": "1.safetensors",
        "fc.weight": "2.safetensors",
    }
    for name, shard in renamed["weight_map"].items():
        assert list(header.read(folder / shard).tensors) == [name]


NOTHING = [
    ("the portable spelling", lambda _: DRAFT),
    ("a whole model, whose layers are its own", lambda _: ROOT / "examples/tiny-eagle3/target"),
    ("no draft", lambda _: ""),
    ("a gguf", lambda tmp_path: shutil.copy(DRAFT / "config.json", tmp_path / "a.gguf")),
]


@pytest.mark.parametrize("draft", [case[1] for case in NOTHING], ids=[case[0] for case in NOTHING])
def test_what_needs_no_new_names_is_left_alone(tmp_path, draft):
    done = hook(tmp_path, draft(tmp_path))
    assert (done.returncode, done.stdout) == (0, "")
    assert not (tmp_path / "releases").exists()


def test_two_layers_that_would_become_one_are_refused(tmp_path):
    draft = tmp_path / "draft"
    draft.mkdir()
    for name in ("layers.0.hidden_norm.weight", "midlayer.hidden_norm.weight"):
        text = json.dumps({name: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
        (draft / f"{name[:4]}.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"x")
    done = hook(tmp_path, draft)
    assert done.returncode == 1
    assert "several tensors would get the same name: midlayer.hidden_norm.weight" in done.stderr
    assert not (tmp_path / "releases").exists()


@pytest.mark.parametrize("waived", ["ckpt", "gpus,ckpt"])
def test_what_no_repair_mends_is_left_as_it_is_where_that_is_waived(tmp_path, waived):
    draft = spelled(tmp_path, "midlayer.", "layers.0.")
    (draft / "model.safetensors").write_bytes(b"")
    done = hook(tmp_path, draft, DEPLOY_WAIVE=waived)
    assert (done.returncode, done.stdout) == (0, "")
    assert "left as it is" in done.stderr


@pytest.mark.parametrize("content", [b"", b"\xff" * 20])
def test_a_broken_draft_stops_the_run_with_evidence(tmp_path, content):
    draft = spelled(tmp_path, "midlayer.", "layers.0.")
    (draft / "model.safetensors").write_bytes(content)
    done = hook(tmp_path, draft)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{draft}: the files are broken" in done.stderr
    assert "model.safetensors: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_killed_half_way_leaves_no_half_folder(tmp_path):
    draft = spelled(tmp_path, "midlayer.", "layers.0.")
    size = 256 << 20
    text = json.dumps({"layers.0.big": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with (draft / "big.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + size)
    env = environment(tmp_path, draft)
    killed = subprocess.Popen([f"{env['DEPLOY_LIB']}/fix_eagle3_keys"], env=env, stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE
    while not list(tmp_path.glob("releases/.*.incoming")) and killed.poll() is None:
        assert time.monotonic() < deadline
    killed.kill()
    assert killed.wait() == -9
    assert not list(tmp_path.glob("releases/*-fixed"))
    folder = fixed(tmp_path, draft)
    assert visible(folder) == ["big.safetensors", "config.json", "model.safetensors"]
    assert list(header.read(folder / "big.safetensors").tensors) == ["midlayer.big"]
    assert not list(tmp_path.glob("releases/.*.incoming"))


def test_a_map_of_absolute_ids_and_a_raw_speculators_config_are_mended_too(tmp_path):
    draft = spelled(tmp_path, "midlayer.", "layers.0.")
    found = header.read(draft / "model.safetensors")
    offsets = array("q", header.load(draft / "model.safetensors", found, "d2t"))
    with (draft / "model.safetensors").open("r+b") as file:
        file.seek(found.data_start + found.tensors["d2t"].start)
        file.write(array("q", [place + offset for place, offset in enumerate(offsets)]).tobytes())
    config = json.loads((draft / "config.json").read_text())
    eagle, own = config.pop("eagle_config"), {key: config.pop(key) for key in ("draft_vocab_size", "architectures")}
    raw = {
        **own,
        "speculators_model_type": "eagle3",
        "norm_before_residual": False,
        "target_hidden_size": None,
        "transformer_layer_config": config,
        "eagle_aux_hidden_state_layer_ids": [2, 3, 5],
    }
    (draft / "config.json").write_text(json.dumps(raw))
    folder = fixed(tmp_path, draft)
    header_ = header.read(folder / "model.safetensors")
    assert array("q", header.load(folder / "model.safetensors", header_, "d2t")) == offsets
    mended = json.loads((folder / "config.json").read_text())
    ids = [1, 2, 4]  # SGLang counts one less
    wanted = {**config, **own, "norm_before_residual": False}
    assert eagle["use_aux_hidden_state"]
    assert mended == {**wanted, "eagle_config": {**eagle, "eagle_aux_hidden_state_layer_ids": ids}}


def test_another_version_that_wants_another_config_gets_another_folder(tmp_path):
    draft = spelled(tmp_path, "midlayer.", "layers.0.")
    config = json.loads((draft / "config.json").read_text())
    raw = {
        "speculators_model_type": "eagle3",
        "draft_vocab_size": config.pop("draft_vocab_size"),
        "norm_before_residual": False,
        "transformer_layer_config": {key: value for key, value in config.items() if key != "eagle_config"},
        "eagle_aux_hidden_state_layer_ids": [3, 4, 5],
        "speculators_config": {"verifier": {"architectures": ["DeepseekV3ForCausalLM"]}},
    }
    (draft / "config.json").write_text(json.dumps(raw))
    ids = {}
    for version in ("0.5.12", "0.5.13", "0.5.12"):
        done = hook(tmp_path, draft, DEPLOY_ENGINE=f"sglang=={version}")
        assert done.returncode == 0, done.stderr
        fixed_config = json.loads(Path(json.loads(done.stdout)["draft"], "config.json").read_text())
        ids[version] = fixed_config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]
    assert ids == {"0.5.12": [2, 3, 4], "0.5.13": [3, 4, 5]}
