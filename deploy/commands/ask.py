"""`deploy ask`: one question of your own, answered as it comes, with what it cost."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from deploy.commands._options import Finite, looking
from deploy.errors import ConfigError, Interrupted, NotReady, SmokeFailed
from deploy.options import Options

if TYPE_CHECKING:
    from deploy.engines import Question
    from deploy.plan import Node
    from deploy.remote import Remote
    from deploy.server.answer import Answer

LONGEST = 24 * 3600.0  # seconds


@click.command
@click.option("--system", default="", metavar="TEXT", help="A system message before the question.")
@click.option("--max-tokens", type=click.IntRange(min=1), default=1024, show_default=True, help="At most so many.")
@click.option("--temperature", type=Finite(min=0), default=0.0, show_default=True, help="0: the likeliest.")
@click.option("--timeout", type=Finite(0.1, LONGEST), default=300.0, show_default=True, help="Seconds without a word.")
@looking("QUESTION [KEY=VALUE]...")
def ask(options: Options, system: str, max_tokens: int, temperature: float, timeout: float) -> int:
    """Ask what runs a QUESTION through its chat route; - takes it from stdin. Nothing is recorded.

    The answer is on stdout as it comes. Thoughts of a reasoning model and the last line, which says tokens, speed,
    time to the first token and accept length of this one request, are on stderr.

    \b
    Examples:
      deploy ask "What is the capital of France?"
      deploy ask - --max-tokens 200 < prompt.txt > answer.txt
      deploy ask "Why is the sky blue?" profile=kimi-eagle3 --temperature 0.6 --json
    """
    import json

    from deploy.deployment.state import TORN
    from deploy.operations import running
    from deploy.server import answer
    from deploy.walk import walking
    from deploy.walk.session import Session

    prompt, words = _split(options.words)
    options = replace(options, words=words)
    with Session("ask") as session:
        running.ask(options, session)
        found = running.the_one(options, session)
        head = found.plan().replicas[0].head
        run = found.runs[head.host.name]
        if not run.alive and not run.left:
            raise NotReady(f"{head.host.name}: run {run.id} does not run: {run.ending}", remedy="deploy status")
        if run.torn and not session.machines[head.host.name].busy:  # while somebody exchanges it, requests only wait
            raise NotReady(f"{head.host.name}: run {run.id}: {TORN}", remedy=f"deploy restart profile={found.name}")
        walking.learn(head, session)
        asked = answer.question(head, prompt, system=system, max_tokens=max_tokens, temperature=temperature)
        told = answer.Answer(session.hidden)
        _answer(told, asked, head, running.placed(head, session), timeout, quiet=options.json)
    measured = told.measured(head)
    if options.json:
        content = {"answer": told.said, "reasoning": told.thought or None, "finish_reason": told.finish_reason}
        where = {"host": head.host.name, "run": run.id, "model": head.served_name}
        click.echo(json.dumps({**content, **where, **measured, "exit_code": 0}, indent=1))
    else:
        ended = f"; cut off at --max-tokens {max_tokens}" if told.finish_reason == "length" else ""
        click.echo(f"{head.host.name}: {answer.line(measured)}{ended}", err=True)
    return 0


def _split(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The question, and the word that says whom to ask."""
    chosen = tuple(word for word in words if word.startswith("profile="))
    questions = [word for word in words if word not in chosen]
    if len(questions) > 1:
        raise ConfigError(f"{len(questions)} questions: {questions}", remedy='one in quotes: deploy ask "..."')
    prompt = sys.stdin.read() if questions == ["-"] else "".join(questions)
    if not prompt.strip():
        raise ConfigError("there is no question", remedy='deploy ask "What is 2+2?", or deploy ask - < FILE')
    return prompt, chosen


def _answer(told: Answer, asked: Question, node: Node, remote: Remote, silence: float, *, quiet: bool) -> None:
    """Hear the whole answer, and show it as it comes. SmokeFailed where nothing is said."""
    from deploy.render import Speech
    from deploy.server import asking

    speech = Speech(sys.stdout, sys.stderr)
    chunks = asking.stream(asked, node, remote, silence=silence)
    try:
        for thought, said in _pieces(told, chunks):
            if not quiet and not (speech.thinks(thought) and speech.says(said)):
                break
    except KeyboardInterrupt:
        raise Interrupted(f"{remote.host.name}: stopped, and the request with it") from None
    finally:
        chunks.close()
        speech.close()
    if not told.said and not told.thought:
        raise SmokeFailed(f"{remote.host.name}: nothing is said", evidence=f"the reason to end: {told.finish_reason}")


def _pieces(told: Answer, chunks: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """What each chunk adds, and at the end what was kept back: (thought, said)."""
    for chunk in chunks:
        yield told.add(chunk)
    yield told.end()
