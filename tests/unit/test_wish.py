"""What is kept of the words of a launch, for the next one that says no others."""

from __future__ import annotations

from pathlib import Path

import yaml

from deploy import wish
from deploy.options import Options
from tests.project import EXAMPLES

TARGET, DRAFT = EXAMPLES / "target", EXAMPLES / "draft"


def test_a_checkpoint_that_each_restart_has_named_is_a_word_once(tmp_path: Path) -> None:
    fields = {
        "engine": "sglang",
        "hosts": "localhost",
        "model": str(TARGET),
        "draft": "gone",
        "speculative": {"algorithm": "EAGLE3"},
    }
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles/tiny.yaml").write_text(yaml.safe_dump(fields))
    (tmp_path / "inventory.yaml").write_text("hosts: {}")
    options = Options((), tmp_path, None, yes=True, output="auto", verbosity=0)
    words: tuple[str, ...] = ("draft=first", "port=30001", "+args.argv=[x]", "+args.argv=[x]")
    for _ in range(3):
        words = wish.load("tiny", options, words=words, ckpt=str(DRAFT)).words
        assert words == ("port=30001", "+args.argv=[x]", "+args.argv=[x]", f"draft.path={DRAFT}")
