"""Classes of policies: what is committed stays; what it cost these users is refused or added."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from local_runs import lineage_of, run

from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.events import PureDp
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.research.strategies.choice.exponential_mechanism import ExponentialMechanism
from murmuration.research.strategies.choice.lineage import commit, of_policies
from murmuration.research.strategies.choice.policy_class import (
    class_digest,
    read_class,
    with_digest,
)

pytestmark = pytest.mark.usefixtures("quick_runs")


def test_resuming_gives_the_same_choice(choice_config, broken_off):
    expected = run(choice_config)
    broken = replace(choice_config, out=choice_config.out + "2")
    broken_off(broken, after=1)
    found = run(replace(broken, resume=True))
    assert found["choice"] == expected["choice"]
    assert len(read_charges(Path(broken.out) / "ledger.jsonl")) == 1


def test_an_unseeded_run_chooses_once(choice_config, broken_off):
    broken = replace(choice_config, seed=-1)
    broken_off(broken, after=1)
    found = run(replace(broken, resume=True))
    charges = read_charges(Path(broken.out) / "ledger.jsonl")
    assert len(charges) == 1 and found["epsilon"] <= 1.0


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def dies_choosing(monkeypatch):
    """A function: run a config and die when it chooses, before that is charged or right after."""
    choose = ExponentialMechanism.choose

    def run_and_die(config, charged):
        def die(self, *arguments, **more):
            if charged:
                choose(self, *arguments, **more)
            raise Killed

        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(ExponentialMechanism, "choose", die)
            run(config, nodes=3)
        return choices(config)

    return run_and_die


def choices(config):
    """How often a choice was charged."""
    charges = read_charges(Path(config.out) / "ledger.jsonl")
    return sum(isinstance(charge.event, PureDp) for charge in charges)


KINDS = {
    "users": {},
    "users held out": {"test": ""},
    "masks": {"secure_aggregation": True, "adjacency": "zero-out"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [3, -1])
def test_a_choice_that_was_not_charged_is_made_when_resumed(
    choice_config, dies_choosing, kind, seed
):
    broken = choice_config.changed(seed=seed, **KINDS[kind])
    assert dies_choosing(broken, charged=False) == 0
    found = run(replace(broken, resume=True), nodes=3)
    assert choices(broken) == 1 and found["epsilon"] <= 1.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [3, -1])
def test_a_choice_that_was_charged_is_not_drawn_again(choice_config, dies_choosing, kind, seed):
    broken = choice_config.changed(seed=seed, **KINDS[kind])
    assert dies_choosing(broken, charged=True) == 1
    for _ in range(2):
        with pytest.raises(InputError, match=r"nothing was learnt: .* over the budget 1; begin"):
            run(replace(broken, resume=True), nodes=3)
        assert choices(broken) == 1
    assert not (Path(broken.out) / "result.json").exists()


def test_a_class_is_what_was_committed(four_policies, tmp_path):
    file = tmp_path / "class.json"
    named = with_digest(str(file))
    assert read_class(named) == read_class(str(file))
    assert named.endswith(class_digest(read_class(str(file))))
    with pytest.raises(InputError, match="there already"):
        commit(file, [str(four_policies[0])], public=True)
    about = json.loads(file.read_text())
    about["policies"].pop()
    file.write_text(json.dumps(about))
    with pytest.raises(InputError, match="was edited"):
        read_class(str(file))
    file.unlink()
    commit(file, [str(four_policies[0])], public=True)
    with pytest.raises(InputError, match="another class than the one that was named"):
        read_class(named)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([], "at least one"),
        (["p0", "p0"], "two policies of the class are called 'p0'"),
        (["p0", "again=p0"], "the policies 'p0' and 'again' are the same model"),
        (["nowhere"], "policy 'nowhere'"),
        (["."], "holds no model"),
    ],
)
def test_what_is_no_class(four_policies, tmp_path, monkeypatch, names, why):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=why):
        commit(tmp_path / "other.json", names, public=True)
    assert not (tmp_path / "other.json").exists()


def test_a_policy_that_says_nothing_of_whom_is_not_taken_for_public(four_policies, tmp_path):
    with pytest.raises(InputError, match=r"says whose data it was made from.*--declare-public"):
        commit(tmp_path / "other.json", [str(four_policies[0])])


def test_a_policy_that_was_edited_is_refused_before_anything_is_charged(
    four_policies, choice_config
):
    about = four_policies[1] / "config.json"
    about.write_text(about.read_text() + " ")
    with pytest.raises(InputError, match=r"'p1'.*another model is there than was committed"):
        run(choice_config)
    assert not Path(choice_config.out).exists()


@pytest.mark.parametrize("other", ["gpt2-chat", "llama"])
def test_a_policy_that_speaks_another_way_is_refused(
    four_policies, choice_config, language_model, tmp_path, other
):
    if other == "llama":
        folder = language_model("gpt2", n_positions=32)
    else:
        folder = language_model(other)
    file = tmp_path / "mixed.json"
    commit(file, [str(four_policies[0]), f"stranger={folder}"], public=True)
    with pytest.raises(InputError, match=r"policy 'stranger'.*another tokenizer"):
        run(choice_config.changed(policies=str(file)))


def test_another_class_is_no_resumed_run(four_policies, choice_config, broken_off, tmp_path):
    broken_off(choice_config, after=1)
    file = Path(choice_config.own.policies)
    file.unlink()
    commit(file, [str(folder) for folder in four_policies[:3]], public=True)
    with pytest.raises(InputError, match=r"the base has models .* and the run was begun with"):
        run(replace(choice_config, resume=True))


@pytest.fixture
def trained(choice_config, tmp_path):
    """A function: the folder of a policy that a run on these users made."""

    def make(name, **changes):
        settings = {"strategy": "uls", "policies": "", "epsilon": 2.0, "rounds": 1, "cohort": 10}
        settings |= {"train": "full", "delta": 1e-5, "out": str(tmp_path / name)}
        run(choice_config.changed(**{**settings, **changes}))
        return tmp_path / name / "model"

    return make


def of_class(config, file, *models, **changes):
    commit(file, [str(model) for model in models], public=True)
    config = config.changed(policies=str(file), **changes)
    return lineage_of(config) | of_policies(read_class(config.own.policies), config)


def test_what_policies_cost_these_users_is_added(trained, choice_config, four_policies, tmp_path):
    model = trained("ada")
    file = tmp_path / "two.json"
    commit(file, [str(model), str(four_policies[0])], public=True)
    assert [policy.name for policy in read_class(str(file))] == ["ada", "p0"]
    config = choice_config.changed(policies=str(file))
    result = run(config)
    spent = json.loads((tmp_path / "ada" / "result.json").read_text())["epsilon"]
    (row,) = result["promise"]["composed"]
    assert row["epsilon"] == pytest.approx(result["epsilon"] + spent) and row["runs"] == 2
    assert "OTHER MODELS THAT ARE NAMED, WERE TRAINED ON USERS" in " ".join(result["warnings"])
    # Whichever was chosen: that it was depends on the other, too.
    told = json.loads((Path(config.out) / "model" / "privacy.json").read_text())
    assert len(told["promise"]["runs"]) == 2


def test_what_cannot_be_added_is_refused(trained, choice_config, tmp_path):
    bare = trained("bare", strategy="nonprivate", population="here")
    for number, changes in enumerate([{}, {"population": "here"}, {"population": "there"}]):
        with pytest.raises(InputError, match="'bare' was trained on people who may be in this run"):
            of_class(choice_config, tmp_path / f"{number}.json", bare, **changes)
    apart = {"population": "there", "disjoint": True}
    assert of_class(choice_config, tmp_path / "apart.json", bare, **apart).runs
    unnamed = trained("unnamed", strategy="nonprivate")
    with pytest.raises(InputError, match="promised users nothing"):
        of_class(choice_config, tmp_path / "unnamed.json", unnamed, **apart)
    other = trained("other", adjacency="replace")
    with pytest.raises(InputError, match="adjacencies differ"):
        of_class(choice_config, tmp_path / "other.json", other)


def test_checkpoints_of_a_run_are_no_policies(trained, tmp_path):
    model = trained("ada", strategy="nonprivate")
    with pytest.raises(InputError, match=r"holds no model; of a run it is what lies in model/"):
        commit(tmp_path / "c.json", [str(model.with_name("checkpoint"))], public=True)
    for lost in ("ledger-1.jsonl", "privacy.json"):
        shutil.copytree(model, tmp_path / lost / "model")
        (tmp_path / lost / "model" / lost).unlink()
        with pytest.raises(InputError, match="what that cost them is not known"):
            commit(tmp_path / "c.json", [str(tmp_path / lost / "model")], public=True)


def test_a_lineage_that_is_another_than_was_committed_is_refused(trained, choice_config, tmp_path):
    model, file = trained("ada"), tmp_path / "one.json"
    commit(file, [str(model)])
    for name in ("privacy.json", "murmuration.json", "README.md"):
        (model / name).unlink()
    with pytest.raises(InputError, match="names other runs that it came from"):
        run(choice_config.changed(policies=str(file)))
