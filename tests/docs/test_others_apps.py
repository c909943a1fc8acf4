"""The page on apps by somebody else, typed: what the app asks for is refused, and no more."""

import re
from dataclasses import fields

import pytest
from deployment import free_ports
from machines import may_make_namespaces, running, walk_on
from walks import ROOT, steps

from murmuration.client.agent.policy import Policy

PAGE = ROOT / "docs" / "how-to" / "others-apps.md"
pytestmark = [pytest.mark.deploy, pytest.mark.slow, pytest.mark.timeout(1500)]


def typed(body: str) -> str:
    """The commands with ports that are free."""
    link, node = free_ports(2)
    body = body.replace("deploy init site ", f"deploy init site --port {link} ")
    return body.replace("deploy client ", f"deploy client --port {node} ")


def gets(output: str) -> dict[str, str]:
    """By request what came of it."""
    return dict(
        re.findall(r"^.*?((?:the|all|a|an) [\w' ]+): (nothing\..*|GOT IT.*)$", output, re.M)
    )


@pytest.mark.skipif(bool(may_make_namespaces()), reason="only root may make other accounts")
def test_the_page_as_it_is_printed(tmp_path):
    with running(tmp_path, ("ward",), ward={"in_namespaces": True}) as machines:
        (machines["ward"].home / "examples").symlink_to(ROOT / "examples")
        walk_on(machines, steps(PAGE.read_text(encoding="utf-8")))


def test_with_one_account_the_file_alone_is_open(tmp_path):
    """What the page says of that; the agent refuses as before, and each word is in its ledger."""
    (step, *_) = steps(PAGE.read_text(encoding="utf-8"))
    with running(tmp_path, ("ward",)) as machines:
        ward = machines["ward"]
        (ward.home / "examples").symlink_to(ROOT / "examples")
        code, output = ward.type(typed(step.body.replace(" --node-user nobody", "")))
        assert code == 0, output
        came = gets(output)
        ledger = (ward.home / "site/clients/ward-state/own-ledger.jsonl").read_text()
    assert len(came) == 6, output
    got = [what for what, said in came.items() if said.startswith("GOT IT")]
    assert got == ["the owner's file", "a sum as the policy allows it"]
    rules = [re.search(r"\((\w+)\)", said)[1] for said in came.values() if "refuses" in said]
    assert rules[:2] == ["strategies", "max_clip"] and set(rules) <= {
        field.name for field in fields(Policy)
    }
    assert all(f"({rule})" in ledger for rule in rules)
    assert ledger.count('"answered": "train"') == 1
