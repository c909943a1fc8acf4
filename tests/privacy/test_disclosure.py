"""Whatever shows or writes a value takes it with its mark alone; each kind goes where it may."""

import ast
import json

import pytest
from rooms import ROOMS, ROOT

from murmuration.privacy.accounting.events import HoldOut, PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger, LedgerError
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.disclosure import (
    Disclosure,
    OperatorOnly,
    Public,
    Released,
    Unmarked,
    disclosed,
    on_terminal,
)
from murmuration.reporting.live.live_view import LiveView
from murmuration.reporting.live.progress import RoundProgress
from murmuration.server.record.result import Result
from murmuration.server.record.run_directory import RunDirectory
from murmuration.strategies.config import RunConfig

PRIVATE = 21365


@pytest.fixture
def ledger(tmp_path):
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5, "budget": 3.0}
    with Ledger(tmp_path / "ledger.jsonl", **terms) as ledger:
        yield ledger


@pytest.fixture
def sinks(tmp_path):
    """Wherever a run's values go, and what takes one there; trackers send ``metrics.jsonl``."""
    folder = RunDirectory(RunConfig(data="d", out=str(tmp_path / "run")))
    view = LiveView(tmp_path, RoundProgress(3, 1.0))
    yield {
        "live view, a stage": view.stage,
        "live view, a note": view.note,
        "metrics and trackers": lambda value: folder.add_metrics(Disclosure({"rows": value})),
        "metrics, all at once": lambda value: folder.add_metrics({"rows": value}),
        "result.json": lambda v: folder.write_json("result.json", Disclosure({"rows": v})),
        "JSON, all at once": lambda value: folder.write_json("config.json", {"rows": value}),
        "released.json": lambda value: folder.once("rows", lambda: value),
        "result": lambda value: Result.from_disclosure(Disclosure({"rows": value})),
        "result, all at once": lambda value: Result.from_disclosure({"rows": value}),
    }
    folder.close()


def test_what_nobody_marked_is_refused_everywhere_and_the_message_says_what_to_do(sinks, capsys):
    for name, take in sinks.items():
        with pytest.raises(Unmarked) as refusal:
            take(PRIVATE)
        message = str(refusal.value)
        assert "Public(...)" in message and "ledger.released(...)" in message, name
        assert "OperatorOnly(...)" in message and str(PRIVATE) not in message, name
    written = [path.read_text() for path in sinks_folder(sinks).rglob("*") if path.is_file()]
    assert not any(str(PRIVATE) in text for text in [*written, *capsys.readouterr()])


def sinks_folder(sinks):
    """The run's folder that the sinks write to."""
    return sinks["result.json"].__closure__[0].cell_contents.path


def test_what_is_for_the_operator_is_labelled_on_the_terminal_and_refused_elsewhere(sinks, capsys):
    line = OperatorOnly(f"{PRIVATE} rows set aside")
    sinks["live view, a stage"](line)
    sinks["live view, a note"](line)
    assert f"operator only: {PRIVATE} rows set aside" in capsys.readouterr().err
    for name, take in sinks.items():
        if not name.startswith("live view"):
            with pytest.raises(Unmarked):
                take(line)
    with pytest.raises(Unmarked, match="'rows' is for the operator only"):
        sinks["metrics and trackers"](line)
    written = [path.read_text() for path in sinks_folder(sinks).rglob("*") if path.is_file()]
    assert not any(str(PRIVATE) in text for text in written)


@pytest.mark.parametrize("hide", [lambda line: [line], lambda line: {"a": line}])
def test_json_refuses_what_is_for_the_operator_also_inside_of_something(sinks, hide):
    with pytest.raises(TypeError, match="OperatorOnly is not JSON"):
        sinks["result.json"](Public(hide(OperatorOnly("3"))))


def test_marked_values_arrive(sinks):
    folder = sinks_folder(sinks)
    sinks["metrics and trackers"](Public(3))
    sinks["result.json"](Released(0.5))
    assert (folder / "metrics.jsonl").read_text() == '{"rows": 3}\n'
    assert json.loads((folder / "result.json").read_text()) == {"rows": 0.5}


def test_a_value_is_released_once_something_was_charged(ledger):
    ledger.charge(HoldOut(0.1), round_=0, covers="coins of who is held out")
    with pytest.raises(LedgerError, match="nothing was charged: release it by a mechanism"):
        ledger.released(1.0)  # coins tell nothing
    ledger.charge(PoissonGaussian(0.1, 4.0), round_=1, covers="gradient sum")
    assert ledger.released(6.0).then(lambda value: value / 3) == Released(2.0)


def test_nothing_but_a_ledger_makes_a_released_value():
    makers = {
        str(file.relative_to(ROOT))
        for room in ROOMS
        for file in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Released")
    }
    assert makers == {"privacy/disclosure.py", "privacy/accounting/ledger.py"}


def test_values_are_read_like_any_and_stay_marked():
    values = Disclosure.public({"rounds": 3})
    values["epsilon"] = Released(1.5)
    assert disclosed(values) == {"rounds": 3, "epsilon": 1.5} == dict(values)
    for change in (values.update, lambda new: values.setdefault("users", new["users"])):
        with pytest.raises(Unmarked, match="'users' is not marked"):
            change({"users": PRIVATE})
    assert "users" not in values


def test_the_label_goes_wherever_the_line_does():
    line = OperatorOnly("3 rows set aside")
    for shown in (str(line), f"{line}", "%s" % line, "{}".format(line), on_terminal(line)):  # noqa: UP031, UP032
        assert shown == "operator only: 3 rows set aside"


@pytest.mark.parametrize("refuse", [json.dumps, float, "".join, sorted])
def test_json_metrics_and_joined_texts_refuse_it(refuse):
    with pytest.raises(TypeError):
        refuse(
            OperatorOnly("3")
            if refuse in (float, json.dumps)
            else [OperatorOnly("3"), OperatorOnly("4")]
        )
