"""Settings that were tuned for NVLink, on eight RTX PRO 6000: told before anything is started."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.project import ROOT, Project

MACHINES = ["rtx-pro-6000 x8", pytest.param("b200 x8", marks=pytest.mark.full)]
SETTINGS: dict[str, Any] = {
    "gpus": 8,
    "parallel": {"tp": 8},
    "nccl": {"NVLS_ENABLE": "1", "P2P_LEVEL": "NVL", "SOCKET_IFNAME": "ens99"},
    "args": {"attention-backend": "trtllm_mla", "enable-nccl-nvls": True},
}
EVERYWHERE = [("nccl", "FAIL", "NCCL_SOCKET_IFNAME=ens99 names no interface of the host")]
WITHOUT_NVLINK = [
    ("nccl", "WARN", "--enable-nccl-nvls: NVLink SHARP needs NVLink, and there is none"),
    ("nccl", "WARN", "NCCL_NVLS_ENABLE=1, and there is no NVLink: NCCL goes on without"),
    ("nccl", "WARN", "NCCL_P2P_LEVEL=NVL, and there is no NVLink: the GPUs talk by shared memory alone"),
    ("sm120", "FAIL", "--attention-backend trtllm_mla on SM120"),
]


@pytest.mark.parametrize("machine", MACHINES)
def test_they_are_told_where_they_do_not_fit(project: Project, machine: str) -> None:
    state = project.folder / "gpus"
    (state / "holders").mkdir(parents=True)
    (state / "gpus.json").write_text(json.dumps({"preset": machine}))
    project.environ["PATH"] = f"{ROOT / 'tests' / 'fake-bin'}:{os.environ['PATH']}"
    project.environ["FAKE_GPU_STATE"] = str(state)
    project.fake(**SETTINGS)

    done = project.run("check", "profile=fake", "--json")

    told = [(one["check"], one["verdict"], one["what"]) for one in done.json if one["check"] in ("nccl", "sm120")]
    expected = [*EVERYWHERE, *(WITHOUT_NVLINK if machine.startswith("rtx") else [])]
    assert [(check, verdict) for check, verdict, _ in told] == [(check, verdict) for check, verdict, _ in expected]
    assert all(what.startswith(begins) for (*_, what), (*_, begins) in zip(told, expected, strict=True)), told
    assert done.code == 5
