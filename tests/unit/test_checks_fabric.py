"""What is found fault with in NVSwitch and NVLink: hosts by the fake nvidia-smi, one fault each."""

# mypy: allow-untyped-defs, allow-untyped-calls

from typing import Any

import pytest

from deploy.checks import fabric
from tests.gpu_hosts import B200, H200, MANAGER, RTX, case, found

# {what: (told, how many are taken, [(verdict, words of what, words of evidence and remedy)])}
FABRIC: dict[str, tuple[dict[str, Any], int | None, list[tuple[str, str, str]]]] = {
    "joined": (B200, 8, [("PASS", "8 GPUs with 18 NVLinks, all up", "")]),
    "no profile": (B200, None, [("PASS", "8 GPUs with 18 NVLinks, all up", "")]),
    "none": (RTX, 8, []),
    "in a virtual machine, whose service runs outside": ({"preset": "b200 x8"}, 8, [("PASS", "all up", "")]),
    "the service is dead": (
        {**B200, "faults": {"*": ["fabric-not-started"]}, "fabric_manager": {**MANAGER, "state": "failed"}},
        8,
        [("FAIL", "GPU 0-7: not joined to the NVLink fabric", "systemctl enable --now nvidia-fabricmanager")],
    ),
    "one GPU alone needs it as well": (
        {**H200, "faults": {"*": ["fabric-in-progress"]}},
        1,
        [
            (
                "FAIL",
                "GPU 0: not joined",
                "In Progress\nfabric manager 570.172.08, active; driver 570.172.08\n-> they may still be joining",
            )
        ],
    ),
    "the service is of another version": (
        {**B200, "faults": {"*": ["fabric-in-progress"]}, "fabric_manager": {"version": "570.1", "state": "failed"}},
        8,
        [("FAIL", "GPU 0-7: not joined", "install nvidia-fabricmanager 570.172.08")],
    ),
    "the service is not there": (
        {"preset": "b200 x8", "faults": {"3": ["fabric-not-started"]}},
        8,
        [("FAIL", "GPU 3: not joined", "on the machine around it")],
    ),
    "an upgrade that waits for a start": (
        {**B200, "fabric_manager": {"version": "570.1", "state": "active"}},
        8,
        [("WARN", "fabric manager is not of the driver's version", "install nvidia-fabricmanager 570.172.08")],
    ),
    "a GPU with an error": (
        {**B200, "elements": {"1": {"fabric/status": "Unknown Error"}}},
        8,
        [("FAIL", "GPU 1: not joined", "Completed, Unknown Error")],
    ),
    "an unhealthy route": (
        {**B200, "faults": {"4": ["fabric-unhealthy"]}},
        8,
        [("FAIL", "GPU 4: the NVLink fabric is not whole", "Unhealthy")],
    ),
    "an unhealthy route, and one GPU": (
        {**H200, "faults": {"*": ["fabric-unhealthy"]}},
        1,
        [("WARN", "not whole", "")],
    ),
    "bandwidth is degraded": (
        {**B200, "elements": {"0": {"fabric/health/bandwidth": "Degraded"}}},
        8,
        [("WARN", "GPU 0: the NVLink fabric is not whole", "bandwidth Degraded")],
    ),
    "links are down": (
        {**B200, "down": {"2": [3, 7]}},
        8,
        [("WARN", "GPU 2: NVLinks are down", "links 3, 7 of 18")],
    ),
    "all links are down": ({**B200, "no_links": True}, 8, [("WARN", "GPU 0-7: NVLinks are down", "all links")]),
    "of a GPU that is not taken": (
        {**B200, "down": {"7": [3]}, "faults": {"6": ["fabric-unhealthy"]}},
        4,
        [("PASS", "4 GPUs", "")],
    ),
    "an A100, whose driver does not tell": (
        {
            **B200,
            "elements": {"*": dict.fromkeys(["fabric/state", "fabric/status", "fabric/health/summary"], "N/A")},
            "fabric_manager": {**MANAGER, "state": "inactive"},
        },
        8,
        [("WARN", "fabric manager is installed and does not run", "inactive")],
    ),
    "joined from outside, where a service of its own rests": (
        {**B200, "fabric_manager": {**MANAGER, "state": "inactive"}},
        8,
        [("PASS", "all up", "")],
    ),
    "bridges, of which some are free": (
        {
            "preset": "b200 x2",
            "elements": {"*": dict.fromkeys(["fabric/state", "fabric/status", "fabric/health/summary"], "N/A")},
            "down": {"0": [1, 2], "1": [1, 2, 3]},
        },
        2,
        [("WARN", "GPU 1: NVLinks are down", "links 1, 2, 3 of 18")],
    ),
    "the driver is not there": ({**B200, "failure": "no-driver"}, 8, []),
}


@pytest.mark.parametrize("name", FABRIC)
def test_the_fabric(tmp_path, name):
    told, taken, expected = FABRIC[name]
    findings = found(fabric.check, case(tmp_path, told, taken))
    assert [one[0] for one in findings] == [one[0] for one in expected], findings
    for (_, what, more), (_, words, evidence) in zip(findings, expected, strict=True):
        assert (words in what, evidence in more) == (True, True), (what, more)
