"""docs/failures.md, made of the engines' tables: `python -m tests.failures_page` writes it anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from deploy.engines import _llamacpp_explain, _sglang_explain, _vllm_explain
from deploy.engines._log import Signature

SIGNATURES = Path(__file__).parent / "fixtures" / "logs" / "signatures.json"
PAGE = Path(__file__).parents[1] / "docs" / "failures.md"
KINDS = {
    "cause": "",
    "consequence": "follows",
    "silence": "silent after it",
    "compiling": "compiles",
    "note": "goes on",
}
ENGINES = (
    ("SGLang, 0.5.8 to 0.5.23", _sglang_explain.DIALECT.rows),
    ("vLLM, written against 0.32", _vllm_explain.DIALECT.rows),
    ("llama.cpp, builds of 2026", _llamacpp_explain.DIALECT.rows),
)
TOP = """\
# Known failures

What `deploy up`, `deploy status` and `deploy explain` know of the servers' logs; made of the tables in
`deploy/engines/*_failures.py` and `*_explain.py` by `python -m tests.failures_page`. The first failure in time is
told. "follows": any cause beats it. "silent after it": the last that was heard before a silence of `ready.stall`.
"compiles": the same, while compilers work. "goes on": no failure, but worth knowing. Your own lines:
[failures.yaml](troubleshooting.md#failuresyaml).

Three states show in no log: a rank that is gone while its launcher lives (S46, `wait` and `health` name it), GPU
memory that no process holds (S59, the step `free` waits `ready.patience` for it), and ranks whose launcher is gone
(S60, `deploy status` says how many live, `deploy down` ends them). A process that was killed without a word is told
by its exit status: SIGKILL, SIGSEGV, SIGBUS (/dev/shm is full), SIGABRT, SIGILL; and by the kernel's own line, where
there is one.
"""


SHARE = """\
Of SGLang's rows S01 to S58, {real} of {all} are tested with lines that SGLang's own code printed on a CPU, in 0.5.8
and 0.5.23: by real starts that failed, or by running the code that prints them. The lines of the others are written
after its source, and set into a real start of two ranks.
"""


def page() -> str:
    """The whole page."""
    composed = json.loads(SIGNATURES.read_text())["composed"]
    names = {row.name for row in _sglang_explain.DIALECT.rows if row.name.startswith("S")}
    share = SHARE.format(real=len(names.difference(composed)), all=len(names))
    return "\n".join([TOP, share, *(line for title, rows in ENGINES for line in _table(title, rows))])


def _table(title: str, rows: tuple[Signature, ...]) -> Iterator[str]:
    yield f"## {title}\n"
    yield from ("| name | line | kind | what it means | what to do |", "|---|---|---|---|---|")
    for row in rows:
        kind = ", ".join(filter(None, (KINDS[row.kind], row.phase and f"in the phase {row.phase}")))
        cells = (row.name, f"`{row.line.pattern}`", kind, row.cause, row.remedy)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page())
