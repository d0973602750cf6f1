"""What is shown of a log that nothing explains."""

from __future__ import annotations

import pytest

from deploy.server import death

SHORT = "a line\n"
ARGS = f"server_args=ServerArgs({', '.join(f'flag_{number}=None' for number in range(200))}, api_key='of a stranger')\n"

ENDS = [
    ("nothing", "", ""),
    ("all of it", SHORT * 3, SHORT * 3),
    ("so many lines", SHORT * 500, SHORT * 214),  # 214 * 7 = 1498
    ("lines that fill it", "x" * 9 + "\n" + "y" * 499 + "\n" + "z" * 999 + "\n", "y" * 499 + "\n" + "z" * 999 + "\n"),
    ("none that has lost its beginning", ARGS + SHORT, SHORT),
    ("of a last one that is too long, the beginning", SHORT + ARGS, ARGS[:1500]),
]


@pytest.mark.parametrize(("log", "shown"), [case[1:] for case in ENDS], ids=[case[0] for case in ENDS])
def test_the_end_of_a_log_has_no_line_without_its_beginning(log: str, shown: str) -> None:
    assert death.end(log) == shown
    assert len(shown) <= 1500
