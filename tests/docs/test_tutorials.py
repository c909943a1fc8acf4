"""The tutorials, typed word by word; one of them on three machines, which are three homes here."""

import re

import pytest
from deployment import free_ports
from machines import on_one_machine, running, walk_three
from walks import ROOT, steps, walk

PAGES = ROOT / "docs" / "tutorials"
SLOW = (pytest.mark.slow, pytest.mark.timeout(3600))
#: Typed before each merge, by `make test-commands`.
COMMANDS = (pytest.mark.slow, pytest.mark.commands)
#: Every tutorial, and what walking it takes.
WALKS = {
    "first-reward.md": COMMANDS,
    "own-data.md": SLOW,
    "reward-to-policy.md": SLOW,
    "three-machines.md": (pytest.mark.deploy, *SLOW),
}
#: What may stay without a walk: the environment has it already, or another machine would be needed.
NOT_RUN = re.compile(
    r"(pip install |git clone |python examples/ukp_judgements|cd murmuration|python3 -m venv |"
    r"\. \.venv/|scp )"
)


def one_machine() -> list:
    names = [name for name in WALKS if name != "three-machines.md"]
    return [pytest.param(name, marks=WALKS[name], id=name) for name in names]


@pytest.mark.parametrize("page", one_machine())
def test_a_tutorial_as_it_is_printed(page, tmp_path):
    walk(PAGES / page, tmp_path)


def test_every_tutorial_is_walked():
    assert {page.name for page in PAGES.glob("*.md")} == set(WALKS)


@pytest.mark.parametrize("page", sorted(WALKS))
def test_what_is_not_run_is_said(page):
    found = steps((PAGES / page).read_text(encoding="utf-8"))
    assert len(found) >= 4
    assert sum(step.run for step in found) >= len(found) - 2
    for step in found:
        step.typed()
        if not step.run:
            lines = [line for line in step.body.splitlines() if line and not line.startswith("#")]
            assert all(NOT_RUN.match(line) for line in lines), lines
            assert re.match(r"not run: \w", step.said)
        if step.language == "python":
            compile(step.body, page, "exec")


@pytest.mark.deploy
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_three_machines_as_they_are_printed(tmp_path):
    """In three homes of one machine; tests/deploy/test_namespaces.py has machines of their own."""
    ports = dict(zip(("init", "client alice", "client bob"), free_ports(3), strict=True))
    with running(tmp_path, ("operator", "alice", "bob")) as machines:
        walk_three(machines, PAGES / "three-machines.md", lambda body: on_one_machine(body, ports))
