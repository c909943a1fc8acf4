"""Nodes that want more than their share of a model: each attack, and that it is refused.

Whole runs of a deployment in this process. Honest nodes read files of their own; the last node's
owner has written an app that answers what it likes. Flower has checked everybody's key.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Error, Message
from flwr.proto.node_pb2 import NodeInfo

from murmuration.client.app import app as client_app
from murmuration.deploy.certificates import client_key
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.randomness import user_key
from murmuration.privacy.mechanisms.tally import STEPS, Tally
from murmuration.server.registration import read_registration
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import RAISED, LocalGrid
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.messages import RegistryEntry
from murmuration.strategies.protocol.node_texts import LONGEST

pytestmark = pytest.mark.usefixtures("quick_runs")

NODES, EACH, CLIP = 3, 20, 0.1
#: Longer than any frame of a terminal, with what moves its cursor and halves of characters.
NASTY = "\x1b[2J\x1b]0;owned\x07\r\n\ud800\u202e" * 20_000


class Liar:
    """The app of a node that means harm: who it says it hosts, and what it answers.

    ``names`` are made of the ids that it claims; ``sums`` and ``tally`` are made of how many users
    are asked for, and an exception is Flower's error reply.
    """

    def __init__(self, ids, sums=None, tally=None, places=0, randomized=False):
        self.ids, self.sums, self.tally, self.places = ids, sums, tally, places
        self.randomized = randomized
        self.asked = []

    def __call__(self, message):
        content, kind = message.content, message.metadata.message_type
        if kind == "query.registry":
            salt = content.config_records["registry"]["salt"]
            keys_U = np.array([user_key(one, salt) for one in self.ids], dtype=np.uint64)
            entry = RegistryEntry(
                0 if self.places else -1,
                keys_U,
                None,
                randomized=self.randomized,
                places=self.places,
            )
            return messages.registry_reply(entry)
        users = len(messages.UserSelection.of(content))
        self.asked.append(users)
        if kind == "evaluate":
            return messages.sums_reply({"tally": self.tally(users)})
        dimension = len(messages.read_work(content).arrays["theta"])
        return messages.sums_reply({"sum": self.sums(users, dimension)})


def pulls(users, dimension):
    """As long a sum as so many users can have, always in one direction."""
    step = UserClip(CLIP).step
    sum_D = np.zeros(dimension)
    sum_D[0] = np.floor(users * CLIP / step) * step
    return sum_D


class Deployed(LocalGrid):
    """Honest nodes, and ``liar`` as the last; Flower tells whose key is whose."""

    def __init__(self, folder, config, liar):
        configs = [
            {"data": str(folder / f"{node}.jsonl"), "public-items": True} for node in range(NODES)
        ]
        super().__init__(client_app, NODES + 1, config.to_run_config(), [*configs, {}])
        self.liar = liar
        self.keys = [(folder / f"{node}.pem").read_bytes() for node in range(NODES + 1)]

    def get_nodes(self):
        return [NodeInfo(node_id=n, public_key=self.keys[n - 1]) for n in self.get_node_ids()]

    def _answer(self, message):
        if message.metadata.dst_node_id <= NODES:
            return super()._answer(message)
        try:
            return Message(self.liar(message), reply_to=message)
        except Exception as error:
            return Message(Error(code=RAISED, reason=str(error)), reply_to=message)


@pytest.fixture
def site(tmp_path, make_rows):
    """Files and keys of three honest nodes with 20 users each, and of one more with one user."""
    rows = make_rows([4] * (NODES * EACH))
    lines = []
    for node in range(NODES + 1):
        mine = {f"u{user:03}" for user in range(node * EACH, (node + 1) * EACH)}
        text = "".join(json.dumps(row) + "\n" for row in rows if row["user_id"] in mine)
        (tmp_path / f"{node}.jsonl").write_text(text)
        _, public = client_key()
        (tmp_path / f"{node}.pub").write_bytes(public)
        lines += [f"[node{node}]", f'key = "{node}.pub"', f"users = {EACH if text else 1}"]
    (tmp_path / "nodes.toml").write_text("\n".join(lines))
    for node, key in enumerate(read_registration(tmp_path / "nodes.toml").nodes):
        (tmp_path / f"{node}.pem").write_bytes(key)
    return tmp_path


@pytest.fixture
def run(site, crowd_test, refreshed):
    """A function: a whole run with a liar among the nodes: its result, weights and private log."""

    refreshed(2)

    def call(liar, **changes):
        settings = {
            "data": "",
            "test": crowd_test,
            "adjacency": "zero-out",
            "epsilon": 8.0,
            "delta": 1e-3,
            "clip_norm": CLIP,
            "rounds": 5,
            "cohort": 30,
            "users": 60,
            "seed": 4,
            "timeout": 5.0,
            "registration": str(site / "nodes.toml"),
        }
        out = site / f"run-{len(list(site.glob('run-*')))}"
        config = RunConfig(**{**settings, **changes}, out=str(out))
        result = run_training(config, Deployed(site, config, liar))
        log = [json.loads(line) for line in (out / "private/log.jsonl").read_text().splitlines()]
        return result, RewardModel.load(out / "model").theta_D, log

    return call


def of(log, what):
    return [line[what] for line in log if what in line]


@pytest.mark.parametrize("places", [0, 1], ids=["deployed", "as if simulated"])
def test_a_node_counts_for_those_it_is_registered_for(run, places):
    """A claim of 100,000 users with 60 registered ones was 99.999 % of the model."""
    many = [f"made up {number}" for number in range(100_000)]
    liar = Liar(many, sums=pulls, places=places)
    result, theta_D, log = run(liar)
    assert max(liar.asked) == 1
    said = of(log, "claims refused")
    assert said == ["99999 of 100000 users it claims are not registered"] * len(said)
    assert len(said) == 3  # at every look at who is there
    _, without_D, _ = run(Liar([], sums=pulls))
    # What one user's sums can add up to at most; momentum and averaging only take from it.
    rate = [line["learning_rate"] for line in metrics(result)]
    assert 0 < abs(theta_D[0] - without_D[0]) <= sum(rate) * CLIP / 30
    assert np.linalg.norm(theta_D - without_D) < 0.2 * np.linalg.norm(without_D)


def metrics(result):
    path = Path(str(result["out"])) / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_claim_silences_the_user_in_question_and_nobody_else(run):
    thief = Liar(["u007", "u008", "u009"], sums=pulls)
    _, _, log = run(thief)
    assert of(log, "claims refused") == ["2 of 3 users it claims are not registered"] * 3
    assert of(log, "hosted twice, or moved") == [2] * 3  # the one user, at both nodes
    assert not thief.asked


def test_who_is_registered_by_id_is_claimed_by_nobody(run, site):
    path = site / "nodes.toml"
    ids = json.dumps([f"u{user:03}" for user in range(EACH)])
    path.write_text(path.read_text().replace(f"users = {EACH}", f"user-ids = {ids}", 1))
    _, alone_D, _ = run(Liar([], sums=pulls))
    thief = Liar([f"u{user:03}" for user in range(EACH)], sums=pulls)
    _, theta_D, log = run(thief)
    assert of(log, "claims refused") == ["20 of 20 users it claims are not registered"] * 3
    assert not of(log, "hosted twice, or moved")
    assert not thief.asked
    assert theta_D.tolist() == alone_D.tolist()


@pytest.mark.parametrize("strategy", ["label-moment", "objective-perturbation"])
def test_a_node_whose_labels_are_randomized_is_left_out_alone(run, strategy):
    """Before: it ended the run, and every run, of everybody."""
    own = {"strategy": strategy, "adjacency": "replace-labels", "rounds": 1, "cohort": 0}
    own |= {"clip_norm": 0.0, "users": 0}
    _, alone_D, _ = run(Liar([]), **own)
    liar = Liar(["u060", "u007"], randomized=True)
    _, theta_D, log = run(liar, **own)
    assert of(log, "not registered") == [
        "its labels were randomized before they came to it (flip_probability)"
    ]
    assert not liar.asked
    assert theta_D.tolist() == alone_D.tolist()


def counts(*first, dtype=np.float64):
    """Counts of users by accuracy, as a node is asked for them: these, and zeros."""
    return np.pad(np.array(first, dtype=dtype), (0, Tally().figures - len(first)))


HOSTILE_TALLIES = {
    "negative": lambda users: counts(-1.0, STEPS + 1.0),
    "a million million": lambda users: counts(1e12, 1e12),
    "more than were asked": lambda users: counts(STEPS * (users + 1.0)),
    "not a number": lambda users: counts(np.nan, STEPS),
    "infinite": lambda users: counts(np.inf, -np.inf),
    "a fraction": lambda users: counts(0.5, STEPS - 0.5),
    "half precision": lambda users: counts(60_000.0, 60_000.0, dtype=np.float16),
    "extended precision": lambda users: (
        counts(STEPS, dtype=np.longdouble) + np.longdouble(2) ** -40
    ),
    "complex": lambda users: counts(STEPS, dtype=np.complex128),
    "one number": lambda users: np.array([float(STEPS)]),
    "a wide one": lambda users: np.zeros((2, 10_000)),
    "texts": lambda users: np.array(["1", *10 * ["0"]]),
    "an error": lambda users: 1 / 0,
}


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("name", HOSTILE_TALLIES)
def test_a_tally_that_its_users_cannot_produce_is_left_out(run, name, monkeypatch):
    """The figure is that of a run in which nobody is there; what was charged stays charged."""
    ids = [f"me {number}" for number in range(40)]  # of whom one counts: held out, or not asked
    held_out = {"test": "", "heldout": 0.5, "rounds": 1}
    seen = []
    tally = messages.read_tally
    monkeypatch.setattr(messages, "read_tally", lambda *a: seen.append(tally(*a)) or seen[-1])
    for seed in range(10):
        liar = Liar(ids, sums=pulls, tally=HOSTILE_TALLIES[name])
        result, _, log = run(liar, **held_out, seed=seed)
        if of(log, "not evaluated"):
            break
    assert len(of(log, "not evaluated")) == 1
    assert 0.0 <= result["heldout_accuracy"] <= 1.0
    assert len(seen) == NODES * (seed + 1)  # the honest nodes', each time
    assert len(read_charges(Path(str(result["out"])) / "ledger.jsonl")) >= 1


@pytest.mark.parametrize("where", ["sums", "names", "registration"])
def test_long_and_odd_texts_of_nodes_are_short_lines_everywhere(run, where, capfd):
    """They were logged whole, and control characters reached the terminal."""

    def fail(*_):
        raise RuntimeError(NASTY)

    liar = Liar(["me"], sums=fail)
    if where == "names":
        liar = Named(["me"])
    if where == "registration":
        liar = fail
    result, _, log = run(liar)
    out = Path(str(result["out"]))
    kept = [*of(log, "left out"), *of(log, "not registered")]
    assert kept
    for why in kept:
        assert why.isprintable()
        assert len(why) <= LONGEST + 100
    for file in out.rglob("*.json*"):
        text = file.read_text()
        assert "\x1b" not in text
        assert all(len(line) < 3_000 for line in text.splitlines()), file
    assert not any(set("\x1b\u202e\x07") & set(text) for text in capfd.readouterr())


class Named(Liar):
    """Gives its sums names that are long and odd."""

    def __call__(self, message):
        if message.metadata.message_type == "query.registry":
            return super().__call__(message)
        return messages.sums_reply({NASTY.replace("\ud800", ""): np.zeros(1)})


def test_a_refused_claim_costs_nobody_anything_and_is_not_published(run):
    liar = Liar([f"made up {number}" for number in range(50)], sums=pulls)
    result, _, _ = run(liar)
    shown = [p for p in Path(str(result["out"])).rglob("*") if "private" not in p.parts]
    assert not any(b"claims" in p.read_bytes() for p in shown if p.is_file())


def test_the_attack_is_one(run):
    """Without a registration, as in a simulation of ours, the liar is believed."""
    liar = Liar([f"made up {number}" for number in range(2_000)], sums=pulls)
    _, theta_D, _ = run(liar, registration="")
    assert max(liar.asked) > 500
    assert theta_D[0] ** 2 > 0.9 * float(theta_D @ theta_D)
