from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from deploy.config.questions import Asked
from deploy.engines import Question, _chat
from deploy.errors import DeployError, SmokeFailed
from deploy.findings import Finding
from deploy.plan import Node
from deploy.remote import Remote
from deploy.server import answer, asking

LOST = "\ufffd"  # what a decoder writes in the place of bytes that are no text


@dataclass(frozen=True)
class Reply:
    """What came: thoughts of a reasoning model, what it said, why it ended, and the whole for the record."""

    thought: str
    said: str
    finish_reason: str
    whole: Mapping[str, Any]

    @property
    def text(self) -> str:
        """All of it: with a reasoning parser the answer may stand in the thoughts."""
        text = "\n".join(part for part in (self.thought, self.said) if part)
        # JSON may hold halves of a character (\\ud83d): two that belong together are one, others are lost.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def smoke(node: Node, remote: Remote) -> str:
    """Ask the profile's questions, the first one also as a stream, and look at the answers"""
    wish, started = node.profile.smoke, time.monotonic()
    first, asked = Asked(ask=wish.ask, expect=wish.expect), Talk(node, remote)
    try:
        reply = asked.whole(first)
        outcome = f"{_short(reply.text)!r} in {time.monotonic() - started:.1f} s"
        streamed = asked.stream(first)
        others = [asked.whole(one) for one in wish.more]
    finally:
        remote.file("questions and answers", {"smoke.json": json.dumps(asked.exchanges, indent=1)})
    for finding in _findings([reply, streamed, *others], wish.ask):
        remote.emit("finding", finding.what, **asdict(finding), waived=False)
    return f"{outcome}, and {len(others)} more answer{'s' * (len(others) > 1)}" if others else outcome


@dataclass
class Talk:
    """Questions to one server, with all that was said."""

    node: Node
    remote: Remote
    exchanges: list[dict[str, Any]] = field(default_factory=list)

    def whole(self, asked: Asked) -> Reply:
        """Ask once and judge the answer."""
        node, remote, wish = self.node, self.remote, self.node.profile.smoke
        question = node.engine.chat(node.served_name, asked.ask, wish.max_tokens)

        def answered() -> Reply:
            told = asking.ask(question, node, remote, timeout=wish.timeout)
            return Reply(*_chat.message(told), _chat.finished(told), told)

        reply = self._recorded(question, answered)
        _judge(asked, reply, node, remote)
        return reply

    def stream(self, asked: Asked) -> Reply:
        """The same as a stream. What it says may differ, as where a batch has another shape; but it must say
        something.
        """
        node, remote, wish = self.node, self.remote, self.node.profile.smoke
        question = answer.question(node, asked.ask, system="", max_tokens=wish.max_tokens, temperature=0)

        def answered() -> Reply:
            told = answer.Answer()
            for chunk in asking.stream(question, node, remote, silence=wish.timeout, whole=wish.timeout):
                told.add(chunk)
            told.end()
            parts = {"reasoning": told.thought, "content": told.said, "finish_reason": told.finish_reason}
            return Reply(told.thought, told.said, told.finish_reason, {**parts, **told.measured(node)})

        reply = self._recorded(question, answered)
        if not reply.text.strip():
            raise _silent(asked, reply, remote, "streamed ")
        return reply

    def _recorded(self, question: Question, answered: Callable[[], Reply]) -> Reply:
        """The reply, with request and answer in the record: what was really asked, and what was really said."""
        self.remote.pause(0)
        started = time.monotonic()
        exchange: dict[str, Any] = {"path": question.path, "request": dict(question.body)}
        try:
            reply = answered()
        except DeployError as error:
            exchange |= {"error": error.what, "evidence": error.evidence}
            raise
        else:
            exchange["answer"] = dict(reply.whole)
        finally:
            exchange["seconds"] = round(time.monotonic() - started, 4)
            self.exchanges.append(exchange)
            self.remote.say("asked", exchange=exchange)
        return reply


def _judge(asked: Asked, reply: Reply, node: Node, remote: Remote) -> None:
    """SmokeFailed where it says nothing, or nothing that was expected."""
    if not reply.text.strip():
        raise _silent(asked, reply, remote, "")
    if re.search(asked.expect, reply.text):
        return
    remedy = "it serves, but is it the right model? The pattern is smoke.expect in the profile"
    if reply.finish_reason == "length":
        limit = node.profile.smoke.max_tokens
        remedy = f"the answer was cut off at smoke.max_tokens={limit}: with more it may come to what is expected"
    raise SmokeFailed(
        f"{remote.host.name}: the answer to {asked.ask!r} does not match {asked.expect!r}",
        evidence=reply.text[:1500],
        remedy=remedy,
    )


def _silent(asked: Asked, reply: Reply, remote: Remote, how: str) -> SmokeFailed:
    return SmokeFailed(
        f"{remote.host.name}: the {how}answer to {asked.ask!r} says nothing",
        evidence=f"nothing is said in {json.dumps(reply.whole)[:1500]}",
        remedy="has the model a chat template, and is it a model that generates?",
    )


def _findings(replies: Sequence[Reply], ask: str) -> Iterator[Finding]:
    """What is no failure, but a sign of one: lost characters, and another answer to the same question."""
    for reply in replies:
        # an answer that is cut off may end in the middle of a character
        text = reply.text.rstrip(LOST) if reply.finish_reason == "length" else reply.text
        if at := text.find(LOST) + 1:
            what = f"an answer has {text.count(LOST)} characters that are none (U+FFFD)"
            remedy = "is the tokenizer the model's own? a broken checkpoint or kernel may answer so, too"
            yield Finding("smoke", "WARN", what, text[max(0, at - 40) : at + 40], remedy)
            break
    whole, streamed, *_ = replies
    if " ".join(whole.text.split()) != " ".join(streamed.text.split()):
        what = f"asked twice at temperature 0, it answers {ask!r} in two ways"
        remedy = "batches of other shapes may round otherwise; a broken kernel or draft may also be why"
        yield Finding("smoke", "WARN", what, f"whole: {whole.text[:700]}\nstreamed: {streamed.text[:700]}", remedy)


def _short(text: str) -> str:
    first = " ".join(text.split())
    return first if len(first) <= 60 else f"{first[:57]}..."
