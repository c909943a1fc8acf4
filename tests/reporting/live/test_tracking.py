"""What a tracker hears of a run: the numbers of ``metrics.jsonl``, each once, and nothing else."""

import inspect
import json
import math
import os
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest

from murmuration.preference.data.rows import InputError
from murmuration.reporting.live import tracking
from murmuration.reporting.live.tracking import STATE, TRACKERS, Channel, tracked


def numbers_of(folder, step="round"):
    """By step, the numbers of a folder's ``metrics.jsonl``."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        line[step]: {
            name: value
            for name, value in line.items()
            if name != step and type(value) in (int, float)
        }
        for line in lines
    }


def add(folder, *rounds, **more):
    folder.mkdir(exist_ok=True)
    with (folder / "metrics.jsonl").open("a") as file:
        for round_ in rounds:
            file.write(json.dumps({"round": round_, "epsilon": round_ / 10, **more}) + "\n")


@pytest.fixture
def heard(monkeypatch):
    """A tracker that remembers what it is sent, in the place of TensorBoard."""
    found = SimpleNamespace(sent=[], begun=[], ended=[])

    def begin(folder, sent):
        found.begun.append((folder.name, sent.name, sent.id))
        return Channel(lambda lines: found.sent.extend(lines.items()), found.ended.append), "id-1"

    monkeypatch.setitem(TRACKERS, "tensorboard", (begin, "json"))
    return found


def test_event_files_hold_the_metrics_and_nothing_else(cli, crowd, crowd_test, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    code, _, _ = cli(
        *("run", "--data", crowd, "--test", crowd_test, "--users", 40, "--cohort", 30, "--seed", 3),
        *("--rounds", 6, "--report-to", "tensorboard", "--run-name", "first", "--json"),
        *("--out", tmp_path / "run"),
    )
    assert code == 0
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard" / "first"))
    events.Reload()
    found = {}
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            found.setdefault(event.step, {})[name] = event.value
    expected = numbers_of(tmp_path / "run")
    assert {r: set(of) for r, of in found.items()} == {r: set(of) for r, of in expected.items()}
    for round_, values in expected.items():
        assert found[round_] == pytest.approx(values, rel=1e-6)
    others = {kind: tags for kind, tags in events.Tags().items() if kind != "scalars"}
    assert not any(others.values()), others


def test_a_private_value_is_never_sent(heard, tmp_path):
    run = tmp_path / "run"
    with tracked(run, "tensorboard"):
        (run / "private").mkdir(parents=True)
        for name in ("log.jsonl", "metrics.jsonl"):
            secret = {"round": 1, "cohort": 31337, "epsilon": 31337.0}
            (run / "private" / name).write_text(json.dumps(secret) + "\n")
        (run / "log.jsonl").write_text('{"round": 1, "cohort": 31337}\n')
        add(run, 1, 2, told="text", shown=True, none=None, inner={"cohort": 31337})
    assert heard.sent == [(1, {"epsilon": 0.1}), (2, {"epsilon": 0.2})]
    assert "31337" not in (run / STATE).read_text()
    assert heard.ended == [True]


def test_a_resumed_run_goes_on_where_it_ended(heard, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(KeyError), tracked(run, "tensorboard", "mine"):
        add(run, 1, 2, 3)
        raise KeyError
    assert [step for step, _ in heard.sent] == [1, 2]  # the third may be run again
    kept = (run / "metrics.jsonl").read_text().splitlines()[:2]
    (run / "metrics.jsonl").write_text("".join(line + "\n" for line in kept))
    with tracked(run, None, resume=True):  # and nobody has to say again where to
        add(run, 3, 4, other=1)
    assert heard.sent[2:] == [(3, {"epsilon": 0.3, "other": 1}), (4, {"epsilon": 0.4, "other": 1})]
    assert heard.begun == [("run", "mine", ""), ("run", "mine", "id-1")]
    assert heard.ended == [False, True]
    with tracked(run, None, resume=True):
        pass
    assert len(heard.sent) == 4
    assert len(heard.begun) == 2, "a finished run begins nothing"
    with tracked(run, "none", resume=True):
        add(run, 5)
    assert len(heard.sent) == 4


def test_a_run_in_simulation_is_sent_wherever_it_goes_on(
    heard, cli, crowd, crowd_test, tmp_path, quick_runs
):
    common = ("--data", crowd, "--test", crowd_test, "--users", 40, "--cohort", 30, "--seed", 3)
    out = tmp_path / "run"
    given = ("run", *common, "--rounds", 4, "--out", out, "--report-to", "tensorboard")
    assert cli(*given, "--json")[0] == 0
    assert dict(heard.sent) == numbers_of(out)
    assert len(heard.sent) == 4
    code, _, lines = cli(*given)  # it is there already, and another's lines are not sent
    assert (code, len(lines)) == (2, 1)
    assert len(heard.sent) == 4
    settings = json.loads((out / "config.json").read_text())
    assert not [name for name in settings if "report" in name or "run_name" in name]


@pytest.mark.parametrize("at", ["begin", "send", "close"])
def test_a_tracker_that_fails_harms_nothing(
    at, monkeypatch, cli, crowd, crowd_test, tmp_path, quick_runs
):
    def fail(*_):
        raise ConnectionError("no\nroute") if at != "close" else SystemExit(3)

    def nothing(*_):
        pass

    def begin(folder, sent):
        if at == "begin":
            fail()
        return Channel(fail if at == "send" else nothing, fail if at == "close" else nothing), "1"

    monkeypatch.setitem(TRACKERS, "wandb", (begin, "json"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    code, out, lines = cli(
        *("run", "--data", crowd, "--test", crowd_test, "--users", 40, "--cohort", 30, "--seed", 3),
        *("--rounds", 4, "--report-to", "wandb", "--json", "--out", tmp_path / "run"),
    )
    assert code == 0
    assert json.loads(out)["rounds"] == 4
    warnings = [line for line in lines if "warning" in line]
    assert len(warnings) == 1
    assert "--report-to wandb failed, the run goes on without it" in warnings[0]
    if at == "send":  # nothing counts as sent
        assert json.loads((tmp_path / "run" / STATE).read_text())["step"] == -1


@pytest.mark.parametrize("tracker", ["tensorboard", "wandb"])
def test_a_missing_library_is_one_line(tracker, cli, crowd, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, tracker, None)
    code, _, lines = cli("run", "--data", crowd, "--report-to", tracker, "--out", tmp_path / "run")
    assert (code, len(lines)) == (2, 1)
    assert f"pip install 'murmuration-rlhf[{tracker}]'" in lines[0]
    assert not (tmp_path / "run").exists()


def test_names_that_cannot_be_used(tmp_path):
    for name in ("", "../up", "a/b", "a\nb", "x" * 129):
        with pytest.raises(InputError, match="--run-name"), tracked(tmp_path, "tensorboard", name):
            pass
    with pytest.raises(InputError, match="--report-to"), tracked(tmp_path, None, "mine"):
        pass
    with pytest.raises(InputError, match="one of none, tensorboard"), tracked(tmp_path, "clearml"):
        pass


def test_a_tracker_that_hangs_is_left_behind(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(tracking, "SECONDS_TO_END", 0.2)
    begin = lambda folder, sent: (Channel(lambda lines: time.sleep(5), lambda ended: None), "1")  # noqa: E731
    monkeypatch.setitem(TRACKERS, "tensorboard", (begin, "json"))
    with tracked(tmp_path / "run", "tensorboard"):
        add(tmp_path / "run", 1)
    assert "has not answered" in capsys.readouterr().err


# Stand-ins for the modules of trackers, with the parameters that ours use. Where the real one is
# installed its signature is checked.


def _checked(call, module, *path):
    """A call that refuses what the real one has no parameter for."""
    try:
        real = __import__(module)
        for part in path:
            real = getattr(real, part)
    except (ImportError, AttributeError):
        return call
    known = set(getattr(real, "model_fields", inspect.signature(real).parameters))

    def checked(*positional, **named):
        assert not set(named) - known
        return call(*positional, **named)

    return checked


@pytest.fixture
def library(monkeypatch):
    """What the stand-in of wandb's module was asked for."""
    seen = []

    def wandb_init(project=None, id=None, name=None, resume=None, settings=None):
        seen.append((project, id, name, resume, settings))
        return SimpleNamespace(
            log=lambda data, step=None: seen.append((step, data)),
            finish=lambda exit_code=None: seen.append(("end", exit_code)),
        )

    module = ModuleType("wandb")
    module.init = _checked(wandb_init, "wandb", "init")
    module.Settings = _checked(lambda **named: named, "wandb", "Settings")
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return seen


LINES = [(1, {"epsilon": 0.1, "heldout_accuracy": 0.6}), (2, {"epsilon": 0.2})]


def send(run):
    with tracked(run, "wandb", "mine"):
        add(run, 1, heldout_accuracy=0.6)
        add(run, 2, heldout_accuracy=None)


def test_wandb_is_told_to_send_nothing_by_itself(library, tmp_path):
    send(tmp_path / "run")
    (project, _, name, resume, settings), *rest = library
    assert (project, name, resume) == ("murmuration", "mine", "allow")
    assert settings["console"] == "off"
    assert settings["x_disable_stats"]
    assert settings["x_disable_meta"]
    assert settings["disable_git"]
    assert not settings["save_code"]
    assert rest == [*LINES, ("end", 0)]


def test_wandb_goes_on_with_its_run(library, tmp_path):
    send(tmp_path / "run")
    begun = library[0]
    assert begun[1]
    library.clear()
    with pytest.raises(KeyError), tracked(tmp_path / "run", None, resume=True):
        add(tmp_path / "run", 3, 4)
        raise KeyError
    assert library[0] == begun, "the same run, by its id"
    assert library[1:] == [(3, {"epsilon": 0.3}), ("end", 1)]


def test_reports_to_makers_are_off_when_the_library_is_imported(library, tmp_path, monkeypatch):
    name = "WANDB_ERROR_REPORTING"
    monkeypatch.setenv(name, "as somebody had it")  # and is again when the test has ended
    imported, honest = [], tracking.importlib.import_module

    def recorded(module):
        imported.append((module, os.environ[name]))
        return honest(module)

    monkeypatch.setattr(tracking.importlib, "import_module", recorded)
    send(tmp_path / "run")
    assert imported[0] == ("wandb", "false")


def test_numbers_are_finite():
    line = {"round": 3, "a": 1, "b": math.inf, "c": True, "d": [1.0], "e": 0.5}
    assert tracking._numbers(line, "round") == {"a": 1.0, "e": 0.5}
