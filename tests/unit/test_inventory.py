"""Hosts, groups, patterns, jumps: who is meant, and what is said when nobody is."""

import re
from pathlib import Path

import pytest

from deploy import inventory
from deploy.errors import ConfigError
from deploy.inventory import Host

ROOT = Path(__file__).parents[2]
FLEET = """
hosts:
  gpu1: {address: 192.0.2.1, user: deploy, gpus: 8, jump: gate}
  gpu2: {address: 192.0.2.2, jump: ops@192.0.2.99:2200}
  gpu3:
  gpu10: {gpus: 4}
  node01: {set: {parallel.tp: 4, nccl: {SOCKET_IFNAME: eth1}}, env: {OMP_NUM_THREADS: 4}}
  node02: {transport: local}
  gate: {address: 192.0.2.50, port: 2222}
groups:
  blackwell: ["gpu[1-3]"]
  nodes: [node*]
  most: [blackwell, nodes, "!gpu2"]
  rest: ["!blackwell"]
"""


@pytest.fixture
def load(tmp_path):
    def read(text):
        file = tmp_path / "inventory.yaml"
        file.write_text(text)
        return inventory.load(file, "inventory.yaml")

    return read


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("gpu1", "gpu1"),
        ("gpu[1-3]", "gpu1 gpu2 gpu3"),
        ("gpu[1,3]", "gpu1 gpu3"),
        ("gpu[1-2,10]", "gpu1 gpu2 gpu10"),
        ("node[01-02]", "node01 node02"),
        ("gpu*", "gpu1 gpu2 gpu3 gpu10"),
        ("gpu?", "gpu1 gpu2 gpu3"),
        ("all", "gpu1 gpu2 gpu3 gpu10 node01 node02 gate"),
        ("*", "gpu1 gpu2 gpu3 gpu10 node01 node02 gate"),
        ("blackwell", "gpu1 gpu2 gpu3"),
        ("most", "gpu1 gpu3 node01 node02"),
        ("rest", "gpu10 node01 node02 gate"),
        ("gpu10,gpu1", "gpu1 gpu10"),
        ("gpu1, gpu1, blackwell", "gpu1 gpu2 gpu3"),
        ("blackwell,!gpu3", "gpu1 gpu2"),
        ("!gpu3,blackwell", "gpu1 gpu2"),
        (["!gpu[1-3]", "gpu*"], "gpu10"),
        ("!gate", "gpu1 gpu2 gpu3 gpu10 node01 node02"),
        ("all,!blackwell,!nodes", "gpu10 gate"),
        ("gpu*,!gpu[1-9]", "gpu10"),
        ("localhost", "localhost"),
        (["localhost", "gpu1"], "gpu1 localhost"),
    ],
)
def test_patterns_name_hosts_in_the_order_of_the_inventory(load, wanted, names):
    assert [host.name for host in load(FLEET).select(wanted)] == names.split()


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("gpu4", "no host and no group is meant by 'gpu4'"),
        ("blackwel", "did you mean blackwell?"),
        ("gpu[1-4]", "no host and no group is meant by 'gpu4'"),
        ("gpu[7-9]", "no host and no group is meant by 'gpu[7-9]'"),
        ("gpu1,!gpu99", "meant by 'gpu99'"),
        ("gpu1,!gpu1", "leaves no host"),
        ("gpu[3-1]", "write the lower number first"),
        ("gpu[1-]", "write ranges as in"),
        ("gpu[0-99999999]", "is not a range"),
        ("zzz*", "known: gpu1"),
        ("", "no hosts are named"),
        ([], "no hosts are named"),
    ],
)
def test_a_pattern_that_means_nobody_is_an_error(load, wanted, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        load(FLEET).select(wanted)


def test_a_host_has_what_is_written_and_defaults_for_the_rest(load):
    fleet = load(FLEET)
    assert fleet.hosts["gpu3"] == Host(name="gpu3", address="gpu3")
    assert fleet.hosts["gpu3"].work == "~/.deploy"
    assert fleet.hosts["node01"].env == {"OMP_NUM_THREADS": "4"}
    assert fleet.hosts["node01"].set == {"parallel.tp": "4", "nccl": {"SOCKET_IFNAME": "eth1"}}


def test_a_jump_is_given_as_a_host(load):
    first, second = load(FLEET).select("gpu[1-2]")
    assert first.via
    assert second.via
    assert (first.via.name, first.via.address, first.via.port) == ("gate", "192.0.2.50", 2222)
    assert (second.via.user, second.via.address, second.via.port) == ("ops", "192.0.2.99", 2200)


def test_localhost_is_there_without_being_written_and_without_ssh(load):
    (host,) = load(FLEET).select("localhost")
    assert (host.transport, host.gpus) == ("local", 0)


def test_localhost_may_be_written_otherwise(load):
    (host,) = load("hosts: {localhost: {port: 2222}}").select("all")
    assert (host.transport, host.port) == ("ssh", 2222)


def test_a_host_survives_being_written_as_json(load):
    for host in load(FLEET).select("all"):
        assert Host.model_validate(host.model_dump(mode="json")) == host


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hosts: {a: {jump: b}, b: {jump: c}, c: {jump: a}}", "hosts.a.jump: goes in a circle: a -> b -> c -> a"),
        ("hosts: {a: {jump: a}}", "hosts.a.jump: goes in a circle: a -> a"),
        ("hosts: {a: {jump: 'b c'}}", "is no host here and not user@host:port"),
        ("hosts: {a: {transport: local, jump: b}}", "has no meaning for transport local"),
        ("hosts: {a: {transport: shh}}", "hosts.a.transport: should be 'ssh' or 'local', not 'shh'"),
        (
            "hosts:\n  a:\n    adress: x",
            "inventory.yaml:3: hosts.a.adress: there is no such key; did you mean address?",
        ),
        ("hosts: {a: {name: b}}", "hosts.a.name: there is no such key; known: address"),
        ("hosts: {a: {via: {}}}", "hosts.a.via: there is no such key"),
        ("hosts: {a: {gpus: -1}}", "hosts.a.gpus: should be greater than or equal to 0"),
        ("hosts: {'a b': {}}", "is not a name: letters, digits, _ . and - only"),
        ("hosts: [a]", "hosts: should be a mapping"),
        ("hosts: {a: 192.0.2.1}", "hosts.a: should be a mapping (key: value), not '192.0.2.1'"),
        ("hosts: {a: }\ngroups: {a: [a]}", "groups.a: is also a host"),
        ("hosts: {a: }\ngroups: {all: [a]}", "groups.all: is every host already"),
        ("hosts: {a: }\ngroups: {g: [h], h: [a, g]}", "groups.g: contains itself"),
        ("hosts: {a: }\ngroups: {g: ['!g']}", "groups.g: contains itself"),
        ("hosts: {alpha: }\ngroups:\n  g: [alhpa]", "inventory.yaml:3: groups.g: no host and no group"),
        ("hosts: {alpha: }\ngroups: {g: [alhpa]}", "did you mean alpha?"),
        ("groups: {}", "hosts: is missing"),
        ("hosts: {a: {work: deploy}}", "hosts.a.work: should be a whole path on the host, or begin with ~/"),
        ("hosts: {a: {work: ~}}", "hosts.a.work: "),
        ("hosts: {a: {work: ~other/x}}", "hosts.a.work: should be a whole path on the host, or begin with ~/"),
        ("hosts: {a: {work: ../x}}", "hosts.a.work: should be a whole path on the host, or begin with ~/"),
        ("hosts: {a: {work: ~/../x}}", "hosts.a.work: should lead straight to its place, without .."),
        ("hosts: {a: {work: /srv/x/..}}", "hosts.a.work: should lead straight to its place, without .."),
        ("hosts: {a: {lock: ~/lock}}", "hosts.a.lock: should be a whole path on the host, from / on"),
        ("hosts: {a: {lock: /tmp/../etc/passwd}}", "hosts.a.lock: should lead straight to its place, without .."),
    ],
)
def test_a_wrong_inventory_is_told_with_its_line(load, text, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        load(text)


def test_the_inventory_that_comes_with_the_tool_is_this_machine_without_ssh():
    shipped = inventory.load(ROOT / "inventory.yaml")
    assert [(host.name, host.transport) for host in shipped.select("all")] == [("localhost", "local")]
