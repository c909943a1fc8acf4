"""Pages on deploying, typed on machines of their own: network, processes, /etc and accounts."""

import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from machines import connect, may_make_namespaces, patiently, running, walk_on, walk_three
from walks import ROOT, steps

TUTORIAL = ROOT / "docs" / "tutorials" / "three-machines.md"
GUIDE = ROOT / "docs" / "how-to" / "deploying.md"
NAMES = ("operator", "alice", "bob")
HOSTS = {"server.example.org": "operator"}
refused = may_make_namespaces()
pytestmark = [
    pytest.mark.deploy,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(bool(refused), reason=refused),
]


def machines(place):
    return running(place, NAMES, **{name: {"in_namespaces": True} for name in NAMES})


def test_the_tutorial_word_by_word(tmp_path):
    """With the names and ports that it prints; runs wait longer for nodes of a busy machine."""
    with machines(tmp_path) as three:
        connect(list(three.values()), HOSTS)
        walk_three(three, TUTORIAL, patiently)


def by_system_services() -> list:
    """The tutorial's steps, where Alice takes over and starts what she was handed by the guide."""
    block = re.compile(r"^```(?:sh|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    blocks = block.findall(GUIDE.read_text(encoding="utf-8"))
    checks = next(each for each in blocks if "--fingerprint" in each)
    services = next(each for each in blocks if each.startswith("useradd"))
    result = []
    for step in steps(TUTORIAL.read_text(encoding="utf-8")):
        if step.machines == ["alice"] and step.body.startswith("murmuration deploy client"):
            result += [replace(step, body=body, shown=[]) for body in (checks, services)]
        elif step.machines == ["alice"] and step.body.startswith("murmuration ledger"):
            result.append(replace(step, body="murmuration ledger /var/lib/murmuration/state\n"))
        elif step.body.startswith("kill"):
            result.append(replace(step, said="on: bob, operator"))
            stopping = "systemctl stop murmuration-node murmuration-agent\n"
            result.append(replace(step, said="on: alice", body=stopping))
        else:
            result.append(step)
    return result


def test_an_owner_with_two_accounts(tmp_path):
    """The guide from the hand-over on, by root and two accounts of Alice's machine."""
    with machines(tmp_path) as three:
        connect(list(three.values()), HOSTS)
        alice, site = three["alice"], three["operator"].home / "site"
        systemctl = alice.kept / "programs" / "systemctl"
        shutil.copy(Path(__file__).parents[1] / "shared" / "stand_ins" / "systemctl.py", systemctl)
        systemctl.write_text(f"#!{sys.executable}\n{systemctl.read_text()}")
        systemctl.chmod(0o755)

        def typed(body: str) -> str:
            if "--fingerprint" not in body:
                return patiently(body)
            (fingerprint,) = re.findall(
                r"\b(?:[0-9A-F]{2}:){31}[0-9A-F]{2}\b", (site / "README.md").read_text()
            )
            return body.replace("5B:9A:…", fingerprint)

        printed = walk_on(three, by_system_services(), typed)
        assert any("which you know" in output for output in printed)
        code, output = alice.type(
            "! setpriv --reuid murmuration-node --regid murmuration-node --clear-groups"
            " cat /var/lib/murmuration/judgements.jsonl"
            " && cd /var/lib/murmuration && stat -c '%U %a' state state/own-ledger.jsonl"
            " && cat /var/lib/murmuration-node/authority.sha256\n"
        )
        assert code == 0, output
        assert "murmuration-agent 700" in output
        assert "murmuration-agent 600" in output
