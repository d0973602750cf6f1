"""The page of `deploy report` in a real browser: nothing is fetched, nothing goes wrong, nothing is cut off.

The browser is Debian's Chromium, without a window; its pictures lie in the folder that pytest keeps.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from deploy.report import charts, content, html, reading
from deploy.runs import kept
from tests import measurements, recorded

READERS = {"desk": ("light", 1100), "phone": ("dark", 390)}
GATES = [
    recorded.gate("accept_length", ">= 2.0", 3.1, holds=True, state="holds", margin=0.02, rounds=8),
    recorded.gate(
        "tok_s@8", ">= 0.95 x last good", 337.0, holds=None, state="within", margin=9.0, rounds=16, why="noise"
    ),
]
# What reaches beyond the window, unless it stands in something that scrolls; and letters beyond the edge of a picture.
CUT = """() => {
    const found = [];
    const scrolls = element =>
        element && (getComputedStyle(element).overflowX === 'auto' || scrolls(element.parentElement));
    for (const element of document.body.querySelectorAll('*')) {
        const box = element.getBoundingClientRect();
        if (box.width && (box.right > innerWidth + 1 || box.left < -1) && !scrolls(element))
            found.push(`${element.tagName} ${element.textContent.slice(0, 40)} to ${box.right}`);
    }
    for (const svg of document.querySelectorAll('svg')) {
        const edge = svg.getBoundingClientRect();
        for (const text of svg.querySelectorAll('text')) {
            const box = text.getBoundingClientRect();
            if (box.left < edge.left - 1 || box.right > edge.right + 1 || box.bottom > edge.bottom + 1)
                found.push(`letters ${text.textContent}: ${box.left} to ${box.right} of ${edge.left} to ${edge.right}`);
        }
    }
    return found;
}"""
# Words of one picture that lie over each other.
OVER = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
    const boxes = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
    const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2;
    return boxes.flatMap(([word, box], place) =>
        boxes.slice(place + 1).filter(([_, other]) => over(box, other)).map(([other]) => `${word} over ${other}`));
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no Chromium (make system)")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])  # root has no sandbox
        yield opened
        opened.close()


def pages(folder: Path) -> dict[str, Path]:
    """Every kind of page that there is, as files."""
    healthy = recorded.again(folder, "20261201-09", bench=measurements.healthy(), verdict={"gates": GATES})
    dead = recorded.again(folder, "20261201-11", "gate-failed", host="localhost", bench=measurements.dead())
    named = {"healthy": [healthy], "dead": [dead], "several": [healthy, dead]}
    named |= {name: [recorded.again(folder, f"20261129-{name}", name)] for name in ("fleet", "killed")}
    files = {}
    for name, runs in named.items():
        document = reading.document([kept.read(run) for run in runs])
        files[name] = folder / f"{name}.html"
        files[name].write_text(html.render(content.page(document), html.style(), charts.svg), encoding="utf-8")
    return files


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return pages(tmp_path_factory.mktemp("pages"))


def opened(browser: Browser, file: Path, scheme: str, width: int) -> tuple[Page, list[str]]:
    """The page, and everything that it did: what it asked for, what it said to the console, where it broke."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    did: list[str] = []
    page.on("request", lambda request: did.append(f"asked for {request.url}"))
    page.on("console", lambda message: did.append(f"said {message.text}"))
    page.on("pageerror", lambda error: did.append(f"broke: {error}"))
    page.goto(file.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    return page, did


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ["healthy", "dead", "several", "fleet", "killed"])
def test_a_page_needs_nothing_and_shows_everything(browser, made, tmp_path, name, reader):
    page, did = opened(browser, made[name], *READERS[reader])
    page.screenshot(path=tmp_path / f"{name}-{reader}.png", full_page=True)
    assert did == [f"asked for {made[name].as_uri()}"]
    assert page.evaluate(CUT) == []
    assert page.evaluate(OVER) == []
    page.close()


def test_light_and_dark_are_those_of_the_reader_and_paper_is_light(browser, made):
    grounds = {}
    for scheme in ("light", "dark"):
        page, _ = opened(browser, made["healthy"], scheme, 1100)
        grounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        bar = page.evaluate("getComputedStyle(document.querySelector('svg .mark-rect path')).fill")
        assert bar == page.evaluate(
            "(() => { const b = document.body; b.style.color = 'var(--c1)'; return getComputedStyle(b).color; })()"
        )
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        page.close()
    assert grounds == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}


def test_the_policy_of_the_page_forbids_what_would_slip_through(browser, made, tmp_path):
    hurt = (
        made["killed"]
        .read_text(encoding="utf-8")
        .replace("<main>", "<main><script>document.title='run'</script><img src='http://192.0.2.9/x.png'>")
    )
    (tmp_path / "hurt.html").write_text(hurt, encoding="utf-8")
    page, did = opened(browser, tmp_path / "hurt.html", "light", 1100)
    assert page.title() != "run"
    assert len([line for line in did if "violates the following Content Security Policy" in line]) == 2
    page.close()
