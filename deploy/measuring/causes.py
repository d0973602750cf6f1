"""Why a draft is accepted less than it should be: a table, one row a cause, the likeliest first.

A row says what the cause would look like, which rules of the checkpoint doctor speak of it, what the files show where
these find nothing, and what to try next. `DEAD` are the causes of accept length 1.00, `PARTIAL` those of one between
1 and what was expected. How far each falls was measured with examples/telling-eagle3 on SGLang 0.5.23 (its README):
causes of the first kind 1.00 to 1.03, of the second 1.59 to 1.81, where the healthy draft has 3.79.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from deploy.checkpoint.rules import Case
from deploy.findings import Finding
from deploy.measuring import shown
from deploy.measuring.measurement import Measurement

Fine = Callable[[Case], str]


@dataclass(frozen=True)
class Row:
    """`topics` are rules whose findings are this cause's, `about` which of them (all, where it is empty).

    `fine` says what the files show where nothing is wrong with them; "" where they show nothing. `proves` is whether
    that rules the cause out. `seen` is what the measurement itself shows of it. A row with `clear` is of nothing else:
    that is what rules it out where nothing is seen.
    """

    name: str
    title: str
    looks_like: str
    next: str
    topics: tuple[str, ...]
    fine: Fine
    about: re.Pattern[str] = re.compile("")
    proves: bool = True
    seen: Callable[[Measurement], str] = lambda _: ""
    clear: str = ""

    def takes(self, topic: str, finding: Finding) -> bool:
        return topic in self.topics and bool(self.about.search(f"{finding.what}\n{finding.evidence}"))


SILENT = "answers are right and slow, and the log says nothing"
CHECK = "deploy ckpt check DRAFT --target TARGET shows where each tensor lands; deploy ckpt fix mends names"

LOADER = Row(
    "loader",
    "tensors of the draft are dropped, and its parameters stay random",
    f"1.00 to 1.4; {SILENT}",
    CHECK,
    ("trace", "shapes", "files"),
    shown.loaded,
)
FUSION = Row(
    "fusion",
    "the target's aux states are not captured, or fc does not fuse them",
    f"1.00 to 1.05; {SILENT}",
    "let eagle_config name the layers of the training, and use_aux_hidden_state be true",
    ("aux_layers",),
    shown.fused,
    about=re.compile(r"use_aux_hidden_state|\bfc\b|name no layer|do not exist"),
)
MAP = Row(
    "d2t",
    "the draft's token ids are taken for the target's",
    f"1.00, now and then 1.2 by chance; {SILENT}",
    "d2t holds offsets, target id - draft id: deploy ckpt fix makes them of target ids",
    ("vocabulary",),
    shown.mapped,
)
ALGORITHM = Row(
    "algorithm",
    "another algorithm, or other settings, than the draft was made for",
    f"1.00 to 1.1; {SILENT}",
    "speculative.algorithm=EAGLE3 for an EAGLE-3 draft",
    ("speculation",),
    shown.algorithm,
)
HEADLESS = Row(
    "head",
    "the draft's output head is missing, or another one is taken",
    f"1.00 to 1.13; {SILENT}",
    "save the draft with its lm_head, and tie_word_embeddings: false",
    ("trace", "config"),
    shown.headed,
    about=re.compile(r"^(?!.*(?:midlayer|layers\.|\bfc\.)).*(?:\blm_head\b|head is tied)", re.DOTALL),  # it alone
)
VALUES = Row(
    "values",
    "the weights themselves are NaN, zero, or as they were before the training",
    "1.00 to 1.1; a random layer beside text that is easily guessed: up to 1.7",
    "take another step of the training, and see that it was saved whole",
    ("values",),
    shown.valued,
)
TRAINING = Row(
    "training",
    "it was trained in a way that this server does not implement",
    f"1.00 to 2; {SILENT}",
    "serve it with the server that its training names, or train it anew",
    ("config",),
    shown.trained,
    about=re.compile("norm_before_residual"),
)
TARGET = Row(
    "target",
    "it was made for another target",
    f"1.00 to 1.3; {SILENT}",
    "take the draft that was trained with this very target, of this precision",
    ("shapes",),
    shown.fits,
    about=re.compile(r"made for a target|not compared"),
)
DEAD = (LOADER, FUSION, MAP, ALGORITHM, HEADLESS, VALUES, TRAINING, TARGET)

OFF_BY_ONE = Row(
    "aux ids",
    "the aux layers' ids are counted otherwise than in the training, mostly by one",
    "half of the healthy gain, in all classes and positions alike (telling pair: 1.65 and 1.81 of 3.79)",
    "try each id one lower and one higher, in copies of it: deploy try LOWER/ HIGHER/",
    ("aux_layers",),
    shown.aux_known,
    proves=False,
)
NORMS = Row(
    "norm flags",
    "a norm is applied where it was not in the training, or norms bear each other's name",
    "half of the healthy gain or less (1.59 of 3.79); with norm_output the first draft holds and the later ones fall",
    "compare norm_output, norm_before_residual and the norms' names with the training's code",
    ("config",),
    shown.normed,
    about=re.compile("norm_output"),
    proves=False,
    seen=shown.positions,
)
WINDOW = Row(
    "window",
    "trained with a sliding window, served with full attention, or the other way round",
    "falls as the text gets longer than the window; short answers are as good as ever",
    "args.speculative-draft-window-size, or compare short prompts with long ones",
    ("config",),
    shown.windowed,
    about=re.compile("sliding"),
)
ROPE = Row(
    "rope",
    "other rotary positions than in the training",
    "half of the healthy gain (1.63 of 3.79), and less the longer the text",
    "write rope_theta and rope_scaling as the training had them: deploy ckpt diff with the training's own config",
    ("config",),
    shown.rope,
    about=re.compile("rope|positions are not scaled"),
    proves=False,
)
TEMPLATE = Row(
    "template",
    "the prompts are not of the kind that it was trained on, or come without the chat template",
    "some classes are good and others poor",
    "bench with prompts of your own traffic (bench.prompts), and see that the chat template is the training's",
    (),
    shown.nothing,
    proves=False,
    seen=shown.templated,
)
TEMPERATURE = Row(
    "temperature",
    "answers are drawn, not the likeliest ones, so that a draft is rejected by chance",
    "falls evenly as bench.temperature rises",
    "bench.temperature=0 shows what the draft can do",
    (),
    shown.nothing,
    seen=shown.sampled,
    clear="asked at temperature 0",
)
PARTIAL = (OFF_BY_ONE, NORMS, WINDOW, ROPE, TEMPLATE, TEMPERATURE)

OTHER = Row(
    "other",
    "what else the checkpoint doctor says",
    "",
    CHECK,
    ("aux_layers", "config"),
    shown.nothing,
)
# Whose a finding is: the first that takes it, so those that take all of a rule come last.
OWNERS = (HEADLESS, TRAINING, TARGET, NORMS, WINDOW, ROPE, FUSION, OFF_BY_ONE, MAP, ALGORITHM, VALUES, LOADER, OTHER)
