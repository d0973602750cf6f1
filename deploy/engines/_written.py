"""What a log tells of acceptance while its server works, as data: a line for the steps since the last one."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Written:
    """`line` has the group `length`, the accept length of some steps, and either `streams`, the requests that each of
    these steps was of, or `accepted` and `drafted`, the tokens of them; perhaps `rate`. `word` is in every such line.

    `every` is how many steps a line is of, and `flag` says another number; 0: a line has its own counts. The flag
    `tokens` says how many a verify step has, the target's own among them. `counts_first` is what the engine calls an
    accept length of its own that counts an answer's first token as well.
    """

    line: re.Pattern[str]
    word: str
    every: int = 0
    flag: str = ""
    tokens: str = ""
    counts_first: str = ""
