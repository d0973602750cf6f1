"""Our table of ports against SGLang's own: which ones it looks at and names, version by version, without a server."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from deploy import engines
from deploy.engines._ports import Said
from tests import overlays
from tests.installed import needs
from tests.project import EXAMPLES

pytestmark = [pytest.mark.engine, pytest.mark.sglang, pytest.mark.full, pytest.mark.timeout(300)]

# `PortArgs.init_new` waits for each port that it needs, and tells the last one, which it does not wait for, by name.
PROGRAM = """
import json, sys, types
from sglang.srt import server_args
asked = []
server_args.wait_port_available = lambda port, name, **_: asked.append(port) if name != "nccl_port" else None
wish = json.loads(sys.argv[1])
if sys.argv[2] == "0.5.23":
    wish["attn_dp_size"] = wish["dp_size"]
    args = server_args.ServerArgs(model_path=sys.argv[3], tp_size=4, device="cpu", **wish)
else:
    absent = dict(nccl_port=None, tokenizer_worker_num=1, decoupled_spec_role="null")
    absent |= dict(is_ep_scale_joiner=False, is_ep_joiner=False)
    args = types.SimpleNamespace(enable_dp_attention=True, **absent, **wish)
named = server_args.PortArgs.init_new(args)
last = getattr(named, "load_collector_ipc_name", "").rpartition(":")[2]
print(json.dumps(sorted({*asked, *([int(last)] if last else [])})))
"""
ADDRESSES = {"alone": None, "two nodes": "192.0.2.1:31000", "near the last port": "192.0.2.1:65533"}
COUNTING = ("0.5.8", "0.5.12.post1")  # beyond the last port, where they fail


@pytest.mark.parametrize("version", ["0.5.8", "0.5.12.post1", "0.5.18", "0.5.23"])
def test_sglang_asks_for_the_ports_that_we_say(version: str) -> None:
    needs(overlays.BASE)
    found = overlays.locate(f"sglang-{version}")
    if found is None:
        pytest.skip(f"python -m tests.overlays sglang-{version} installs it")
    for place, address in ADDRESSES.items():
        if place == "near the last port" and version in COUNTING:
            continue
        nodes = 1 if address is None else 2
        wish: dict[str, Any] = {"port": 30000, "nnodes": nodes, "dist_init_addr": address, "dp_size": 4}
        argv = [found.python, "-c", PROGRAM, json.dumps(wish), version, str(EXAMPLES / "target")]
        done = subprocess.run(argv, env={**os.environ, **found.env}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        flags = {"dp-size": ("4",), "enable-dp-attention": ()} | ({"dist-init-addr": (address,)} if address else {})
        ours = engines.load("sglang").ports(Said(flags, port=30000, nodes=nodes, version=version))
        rest = sorted(one.number for one in ours if one.what != "HTTP")  # that one it binds after the load
        assert json.loads(done.stdout.splitlines()[-1]) == rest
