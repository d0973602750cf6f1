"""Tables of failures as text, three lines a row; their form is told in _sglang_failures.py."""

from __future__ import annotations

import re

from deploy.engines._log import Signature

KINDS = {"": "cause", "~": "consequence", "?": "silence", "?+": "compiling", "!": "note"}
ROW = re.compile(
    r"^(?P<name>[\w-]+)(?P<kind>~|\?\+|\?|!|)(?P<count>\d*)(?:@(?P<phase>\S+))?  (?P<line>.+)\n    (.+)\n    -> (.+)$",
    re.MULTILINE,
)


def rows(text: str) -> tuple[Signature, ...]:
    """The rows of a table of failures, three lines each; ValueError for a text that is not all rows."""
    if ROW.sub("", text).strip():
        raise ValueError(f"not a row of the table: {ROW.sub('', text).strip()[:200]}")
    return tuple(
        Signature(
            row["name"],
            re.compile(row["line"]),
            row[6],
            row[7],
            KINDS[row["kind"]],  # type: ignore[arg-type]
            row["phase"] or "",
            int(row["count"] or 1),
        )
        for row in ROW.finditer(text)
    )
