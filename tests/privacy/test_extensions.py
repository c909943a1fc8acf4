"""What other packages bring: what is imported when, what is refused, and in which words."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from packages import install

from murmuration.preference import models, policy_losses
from murmuration.preference.data import loading
from murmuration.preference.data.errors import InputError
from murmuration.privacy import extensions
from murmuration.privacy.accounting import events
from murmuration.privacy.accounting.ledger import Ledger, LedgerError
from murmuration.privacy.adjacency import Adjacency

GROUPS = "murmuration.losses", "murmuration.policy_losses", "murmuration.readers"
EVENT = """
from dataclasses import dataclass
from typing import ClassVar

from murmuration.privacy.accounting.discrete_pmf import DiscretePMF


@dataclass(frozen=True)
class Told:
    kind: ClassVar[str] = "told"
    epsilon: float

    def loss(self, adjacency, interval):
        return (DiscretePMF.worst(self.epsilon, 0.0, interval),)
"""


def forget():
    extensions._points.cache_clear()
    extensions._loaded.cache_clear()


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A function: puts a package on the path, as if it was installed."""

    def make(points, name="other", **modules):
        site = install(tmp_path / name, name, points, modules)
        monkeypatch.syspath_prepend(str(site))
        forget()

    before = set(sys.modules)
    yield make
    monkeypatch.undo()
    forget()
    for name in set(sys.modules) - before:
        if not name.startswith("murmuration"):
            del sys.modules[name]


def test_a_restricted_process_gives_nothing_back(installed, monkeypatch):
    """Threads begin without the block that they are started in."""
    installed({GROUPS[0]: {"one": "one:IT", "two": "one:IT"}}, one="IT = 1")
    monkeypatch.setattr(extensions, "_of_process", None)

    def in_a_thread():
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(models.LOSSES.names).result()

    with extensions.only(["one"]):
        assert models.LOSSES.names() == ("one",)
        assert in_a_thread() == ("one", "two")
    extensions.restrict(["two"])
    assert in_a_thread() == models.LOSSES.names() == ("two",)
    with extensions.only(["one"]):
        assert models.LOSSES.names() == ()
    extensions.restrict(["one", "two"])
    assert in_a_thread() == ("two",)


def test_listing_names_imports_nothing(installed):
    installed({group: {"broken": "broken:IT"} for group in GROUPS}, broken="raise SystemExit(7)")
    assert models.LOSSES.names() == ("broken",)
    assert "broken" in policy_losses.OBJECTIVES.names()
    assert models.preference_model("btl").name == "btl"
    assert "broken" not in sys.modules


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("raise SystemExit(7)", "SystemExit: 7"),
        ("import not_there", "ModuleNotFoundError: No module named 'not_there'"),
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
        ("", "AttributeError: module 'bad' has no attribute 'IT'"),
        ("IT = 3", "it is no "),
    ],
)
def test_what_cannot_be_used_is_said_in_a_line_with_the_package(installed, tmp_path, source, why):
    installed({group: {"named": "bad:IT"} for group in GROUPS}, bad=source)
    (tmp_path / "x.named").write_text("")
    for ask in (
        lambda: models.preference_model("named"),
        lambda: policy_losses.PolicyLoss("named"),
        lambda: loading.load_judgements(str(tmp_path / "x.named")),
    ):
        with pytest.raises(InputError) as refused:
            ask()
        assert "\n" not in str(refused.value) and why in str(refused.value)
        assert "'named' of package other 0.1 (murmuration." in str(refused.value)


def test_a_declaration_is_called_as_its_entry_point(installed):
    source = (
        "from murmuration.preference.policy_losses import PolicyObjective as P\nIT = P('other')"
    )
    installed({"murmuration.policy_losses": {"named": "called:IT"}}, called=source)
    with pytest.raises(InputError, match="cannot be used: it is called 'other'"):
        policy_losses.PolicyLoss("named")


@pytest.mark.parametrize(
    ("slopes", "losses", "why"),
    [
        ("(z - y).sum(1)", "(z * y).sum(1)", "its slopes .* have the shape \\(2,\\) instead of"),
        ("z - y", "z * y", "its losses .* have the shape \\(2, 1\\) instead of \\(2,\\)"),
        ("z / z", "(z * y).sum(1)", "its slopes at logits of zero are not finite"),
        ("z.slope()", "(z * y).sum(1)", "its slopes failed: AttributeError"),
    ],
)
def test_a_loss_that_cannot_be_learnt_from_is_refused(installed, slopes, losses, why):
    source = (
        "from murmuration.preference.models import PreferenceLoss, PreferenceModel\n"
        f"model = PreferenceModel('odd', lambda z, y: {slopes}, lambda z, y: {losses})\n"
        "IT = PreferenceLoss('odd', 'for pairs', 'margins', lambda kind, width: model)"
    )
    installed({"murmuration.losses": {"odd": "odd:IT"}}, odd=source)
    with pytest.raises(InputError, match=f"--model odd: {why}"):
        models.check_model("odd", 1)


@pytest.mark.parametrize(
    ("row", "found"), [("{'user_id': 'a'}", "dict"), ("(1, 'a')", "int, str"), ("1", "int")]
)
def test_what_a_reader_yields_is_named_where_it_is_no_row(installed, tmp_path, row, found):
    source = (
        "from murmuration.preference.data.sources import Reader\n"
        f"IT = Reader('odd', lambda file: iter([{row}]))"
    )
    installed({"murmuration.readers": {"odd": "odd:IT"}}, odd=source)
    (tmp_path / "x.odd").write_text("")
    with pytest.raises(InputError, match=f"expected \\(line number, row\\).* found \\({found}\\)"):
        loading.load_judgements(str(tmp_path / "x.odd"))


def test_our_names_are_not_to_be_had_and_two_packages_cannot_share_one(installed):
    taken = {"murmuration.losses": {"btl": "greedy:IT", "same": "greedy:IT"}}
    installed({**taken, "murmuration.events": {"pure-dp": "greedy:IT"}}, greedy="raise OSError")
    installed({"murmuration.losses": {"same": "late:IT"}}, name="late", late="raise OSError")
    assert models.LOSSES.names() == ("same",) and "pure-dp" not in events.EVENTS.names()
    assert models.preference_model("btl").name == "btl"
    assert events.from_json({"kind": "pure-dp", "epsilon": 1.0}) == events.PureDp(1.0)
    both = "'same' of package late 0.1 and package other 0.1 .*: the name is brought 2 times"
    with pytest.raises(InputError, match=both):
        models.declared("same")


def test_inside_only_nothing_else_is_imported(installed):
    source = "from murmuration.preference.policy_losses import PolicyObjective as P\nIT = P('{}')"
    named = {name: f"{name}:IT" for name in ("one", "two")}
    sources = {name: source.format(name) for name in named}
    installed({"murmuration.policy_losses": named}, **sources)
    policy_losses.PolicyLoss("one")  # imported before it is forbidden: forbidden all the same
    with extensions.only(["two"]):
        assert policy_losses.PolicyLoss("two").name == "two"
        with pytest.raises(InputError, match=r"--loss must be one of dpo, .*, two; got 'one'"):
            policy_losses.PolicyLoss("one")
    with extensions.only([]), pytest.raises(InputError, match="--loss must be one of"):
        policy_losses.PolicyLoss("two")
    assert policy_losses.PolicyLoss("one").name == "one"


def test_a_ledger_is_not_read_without_the_package_of_an_event(installed, tmp_path):
    installed({"murmuration.events": {"told": "told:Told"}}, told=EVENT)
    path, terms = tmp_path / "ledger.jsonl", {"adjacency": Adjacency.ZERO_OUT, "delta": 1e-6}
    event = events.from_json({"kind": "told", "epsilon": 0.5})
    with Ledger(path, budget=2.0, **terms) as ledger:
        ledger.charge(event, round_=1, covers="all")
        assert ledger.epsilon() == pytest.approx(0.5, rel=1e-3)
    with Ledger(path, budget=2.0, **terms) as again:
        assert again.spent()[event] == 1
    with extensions.only([]), pytest.raises(LedgerError, match="unknown event kind 'told'; known"):
        Ledger(path, budget=2.0, **terms)


def test_an_event_that_could_not_be_read_back_is_not_charged(tmp_path):
    class Cheap(events.PureDp):
        """Says that it is another."""

    with (
        Ledger(tmp_path / "l", adjacency=Adjacency.ZERO_OUT, delta=1e-6, budget=9.0) as ledger,
        pytest.raises(ValueError, match="Cheap is not the event of the kind 'pure-dp'"),
    ):
        ledger.charge(Cheap(1.0), round_=1, covers="all")
    assert '"pure-dp"' not in (tmp_path / "l").read_text()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (('kind: ClassVar[str] = "told"', 'kind: ClassVar[str] = "pure-dp"'), "kind is 'pure-dp'"),
        (("frozen=True", "frozen=False"), "a frozen dataclass"),
        (("def loss", "def cost"), "it has no loss"),
    ],
)
def test_what_is_no_event_is_refused(installed, changes, why):
    installed({"murmuration.events": {"told": "told:Told"}}, told=EVENT.replace(*changes))
    with pytest.raises(ValueError, match=why):
        events.from_json({"kind": "told", "epsilon": 0.5})
