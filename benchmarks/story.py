"""The whole story on the real SGLang, as a recorded terminal run: docs/story.svg.

    python -m benchmarks.story [--out docs/story.svg]

A trained draft of which not one token is accepted, as it happens by hand over days: the names of its layer are
not those that the server knows; once they are mended it is hardly better, since the server runs another algorithm, by
which the states of the aux layers never reach the draft. Every line is the tool's own output of a real run on this
machine (`deploy engine install sglang-cpu`); lines of no use for the story are left out, and that is shown (...).
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests import places, telling
from tests.installed import Deployment, deployment, needs
from tests.project import ROOT, TELLING

OUT = ROOT / "docs" / "story.svg"
MACHINE = re.compile(r"\b[0-9a-f]{32}\b")  # which machine it was is no part of the story
WIDTH = 132
PROFILE = {
    **telling.SERVED,
    "speculative": {"algorithm": "EAGLE", "num_steps": 3, "eagle_topk": 1},
    "bench": {"prompts": telling.PROMPTS[:4], "max_tokens": 64, "rounds": 3, "most_rounds": 3},
    "gates": {"accept_length": ">= 2.0"},
}
STORY = (
    (
        "1. A new draft. Nothing is touched: its files and the profile say already that it cannot work, twice.",
        ("up", "profile=tiny"),
        5,
    ),
    (
        "2. Let pass by name, as it is by hand: the server is healthy and answers well. The number is what tells.",
        ("up", "profile=tiny", "waive=[ckpt]"),
        9,
    ),
    (
        "3. The names are mended by hand. Hardly better: that was one cause of two.",
        ("restart", "--ckpt", "renamed", "waive=[ckpt]"),
        9,
    ),
    (
        "4. With the other cause out of the way as well.",
        ("restart", "--ckpt", "renamed", "speculative.algorithm=EAGLE3"),
        0,
    ),
    ("5. What each of them was.", ("history",), 0),
)
TOLD = re.compile(r"^\s+(?:\d+m)?[\d.]+s ")  # a line with its time; what stands below it is of it
DULL = (
    re.compile(
        r"WARN (?!ckpt)|preflight  \d+ passed|  prepare  |  free  |  stop  |  ready  |  push  |bench +(warm-up|round)"
    ),
    re.compile(r"  wait   (?!.*ready after)"),
)
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # rich has them fetched from elsewhere
STYLES = (
    (r"FAIL(ED|S)?\b|not one drafted token is accepted[^(]*|drops tensors of the draft", "bold red"),
    (r"WARN\b", "yellow"),
    (r"\bholds\b|ready after.*|accept length 3\.\d+", "green"),
    (r"^ +\d+\. not .*", "dim"),
    (r"^ *\.\.\.$", "dim"),
)


def shown(lines: Iterable[str]) -> Iterator[str]:
    """The lines without the dull ones, each stretch of which is one line of dots."""
    dull = left_out = False
    for line in lines:
        if TOLD.match(line):
            dull = any(pattern.search(line) for pattern in DULL)
        if not dull:
            yield line
        elif not left_out:
            yield "   ..."
        left_out = dull


def coloured(line: str) -> Text:
    text = Text(line)
    for pattern, style in STYLES:
        text.highlight_regex(pattern, style)
    return text


def play(made: Deployment, console: Console, names: dict[str, str]) -> None:
    """Run each command of the story and print it as a terminal would show it; SystemExit where it ends otherwise."""
    for title, words, code in STORY:
        argv = [names.get(word, word) for word in words]
        done = made.project.run(*argv, timeout=900)
        console.print(Text(f"\n{title}", style="bold cyan"))
        console.print(Text(f"$ deploy {' '.join(words)}", style="bold"))
        text = f"{done.err}{done.out}"
        for path, name in (
            (f"{made.project.folder}/work", "~/.deploy"),
            (str(made.project.folder), "~"),
            (str(ROOT), "~"),
            *((p, n) for n, p in names.items()),
        ):
            cell = re.compile(rf"{re.escape(path)}(…?)(?=  )")  # of a table: its column stays as wide as it was
            text = cell.sub(rf"{name}\1{' ' * (len(path) - len(name))}", text)
            text = text.replace(path, name)
        text = MACHINE.sub("MACHINE-ID", text)
        for line in shown(text.rstrip().splitlines()):
            console.print(coloured(line), overflow="fold")
        if done.code != code:
            sys.exit(f"deploy {' '.join(argv)} ended with {done.code}, not {code}\n{done.err}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    needs("sglang-cpu")
    console = Console(record=True, width=WIDTH, force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        trained = places.broken("unknown-prefix", Path(folder), TELLING / "draft")
        renamed = shutil.copytree(TELLING / "draft", Path(folder) / "renamed")
        fields = {**PROFILE, "draft": str(trained)}
        with deployment(Path(folder) / "project", places.here(), "local-sglang", **fields) as made:
            play(made, console, {"renamed": str(renamed), "trained": str(trained)})
    picture = console.export_svg(title="deploy: a draft of which not one token is accepted")
    given.out.write_text(FONTS.sub("", picture))


if __name__ == "__main__":
    main()
