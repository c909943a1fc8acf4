"""Every command, and every runtime, once and in small: from a folder that holds judgements alone,
in a process and a home of its own (``make test-commands``).

The fourth runtime, a deployment, is the page that ``tests/sims/test_documented_deployment.py``
types.
"""

import shutil
import subprocess
from dataclasses import dataclass

import pytest
from walks import environment

from murmuration.cli.commands import COMMANDS
from murmuration.sims.runtimes import Runtime

_DATA = "--data judgements.jsonl"
_SMALL = f"{_DATA} --delta 1e-3 --rounds 2 --cohort 20"
_RUN = f"murmuration run {_SMALL} --epsilon 3"
_ASK = "--prompts murmuration.questions --max-new-tokens 4 --limit"


@dataclass(frozen=True)
class Row:
    """What is typed, the file that it leaves or a word that it prints, and what was typed before,
    by name."""

    typed: str
    leaves: str = ""
    prints: str = ""
    after: tuple[str, ...] = ()


#: By the command, or the command and what is special about it.
ROWS = {
    "run: ray": Row(f"{_RUN} --runtime ray --workers 1 --out ray", "ray/model"),
    "bench": Row("murmuration bench accounting --quick", prints="dp-accounting"),
    "reproduce": Row("murmuration reproduce aup-tables --quick --out again", "again"),
    "audit": Row("murmuration audit randomized-response --trials 200", prints="consistent"),
    "agent": Row(
        "echo 'strategies = [\"uls\"]' > policy.toml\n"
        f"murmuration agent {_DATA} --policy policy.toml --state state --socket agent.sock &\n"
        "while kill -0 $! && [ ! -S agent.sock ]; do sleep 0.1; done\n"
        "kill $!\nwait $!\n",
        "state",
    ),
    "deploy": Row("murmuration deploy init site --host 127.0.0.1 --clients ada", "site/clients"),
    "init": Row("murmuration init app my-app", "my-app/pyproject.toml"),
    "plan": Row(
        "murmuration plan --users 50 --rounds 2 --cohort 20 --delta 1e-3 --epsilon 3",
        prints="noise",
    ),
    "bounds": Row(
        "murmuration bounds --users 50 --judgements 2 --dimension 4 --epsilon 3 --delta 1e-3",
        prints="lower",
    ),
    "data": Row("murmuration data judgements.jsonl", prints="50 users"),
    "privatize": Row(
        f"murmuration privatize {_DATA} --epsilon 3 --state coins --out told.jsonl", "told.jsonl"
    ),
    "survey": Row(f"murmuration survey {_DATA} --epsilon 3 --delta 1e-3 --out survey", "survey"),
    "tune": Row(
        f"murmuration tune {_SMALL} --epsilon 3 --grid clip_norm=0.1,0.2 --out tuned", "tuned"
    ),
    "compare": Row(
        f"murmuration compare {_SMALL} --strategies uls --epsilons 3 --seeds 1 --out compared",
        "compared/runs",
    ),
    "init: population": Row("murmuration init arena --count 3 --users 50 --out arena", "arena"),
    "rank": Row(
        "murmuration rank --data arena/votes.jsonl --items arena/items.txt --epsilon 3 "
        "--delta 1e-3 --out board",
        "board/result.json",
        after=("init: population",),
    ),
    "run": Row(f"{_RUN} --out run", "run/model/model.safetensors"),
    "score": Row("murmuration score run/model --prompt a --response b", prints="b", after=("run",)),
    "report": Row("rm run/report.html\nmurmuration report run", "run/report.html", after=("run",)),
    "ledger": Row("murmuration ledger run", prints="Ledger intact", after=("run",)),
    "export": Row(
        "murmuration export run --out shared --push me/reward --dry-run",
        "shared/README.md",
        "nothing was sent",
        after=("run",),
    ),
    "init: base": Row(
        "murmuration init base --out base --architecture llama --exchanges 16 --epochs 1",
        "base/model.safetensors",
    ),
    "policies": Row(
        "murmuration policies commit class.json base --declare-public",
        "class.json",
        after=("init: base",),
    ),
    "respond": Row(
        f"murmuration respond base {_ASK} 2 --out answers.jsonl",
        "answers.jsonl",
        after=("init: base",),
    ),
    "winrate": Row(
        f"murmuration winrate base --against base --judge run/model {_ASK} 2",
        prints="wins",
        after=("run", "init: base"),
    ),
    "align": Row(
        f"murmuration align --base base --reward run/model {_ASK} 10 --steps 1 --evaluate-on 2 "
        "--out aligned",
        "aligned/model",
        after=("run", "init: base"),
    ),
}


@pytest.fixture(scope="module")
def type_row(crowd, tmp_path_factory):
    """A function: type a row where those before it are typed, each once."""
    place = tmp_path_factory.mktemp("commands")
    (place / "home").mkdir()
    (folder := place / "empty").mkdir()
    shutil.copy(crowd, folder / "judgements.jsonl")
    outputs = {}

    def type_(name):
        row = ROWS[name]
        for earlier in row.after:
            type_(earlier)
        if name not in outputs:
            done = subprocess.run(
                ["bash", "-ec", row.typed], cwd=folder, env=environment(place / "home"),
                stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            assert "Traceback" not in done.stderr
            outputs[name] = done.stdout
        return folder, outputs[name]

    return type_


def by_process():
    """The rows; those that stand on others, and these, are typed by one process."""
    stood_on = {earlier for row in ROWS.values() for earlier in row.after}
    for name, row in ROWS.items():
        together = row.after or name in stood_on
        yield pytest.param(name, marks=pytest.mark.xdist_group("rows") if together else ())


@pytest.mark.commands
@pytest.mark.slow
@pytest.mark.parametrize("name", list(by_process()))
def test_a_command_does_its_work_from_an_empty_folder(type_row, name):
    folder, printed = type_row(name)
    assert ROWS[name].leaves or ROWS[name].prints
    assert (folder / ROWS[name].leaves).exists()
    assert ROWS[name].prints in printed


def test_every_command_and_every_runtime_has_a_row():
    assert {name.partition(":")[0] for name in ROWS} == set(COMMANDS)
    for name, row in ROWS.items():
        assert f"murmuration {name.partition(':')[0]} " in row.typed
    runtimes = {f"run: {runtime}" for runtime in Runtime if runtime is not Runtime.LOCAL}
    assert runtimes <= set(ROWS)
