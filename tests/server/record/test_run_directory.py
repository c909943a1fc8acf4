"""The run directory: its keys and settings, what stays private, and damaged files."""

import json
import stat
from dataclasses import replace

import pytest
from cards import RESULT

from murmuration.api.config import make_config as settings
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.events import HoldOut
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.disclosure import Disclosure, Released
from murmuration.server.record.result import Result
from murmuration.server.record.run_directory import RunDirectory
from murmuration.server.record.run_files import former_nodes
from murmuration.server.record.run_lock import RunLock

pytestmark = pytest.mark.settings(data="d.jsonl", delta=1e-5, seed=7)


def test_private_is_private_and_holds_the_seed_alone(config):
    folder = RunDirectory(replace(config, seed=918273645))
    assert stat.S_IMODE(folder.private.stat().st_mode) == 0o700
    for path in folder.path.rglob("*"):
        if path.is_file():
            private = path == folder.private / "seed.json"
            assert ("918273645" in path.read_text()) == private
    keys = json.loads((folder.private / "keys.json").read_text())
    for path in folder.path.rglob("*"):
        if path.is_file() and path.parent != folder.private:
            assert not any(key in path.read_text() for key in keys.values())
    folder.private.chmod(0o755)
    folder.close()
    RunDirectory(replace(config, seed=918273645, resume=True))
    assert stat.S_IMODE(folder.private.stat().st_mode) == 0o700


def test_resuming(config):
    name = RunDirectory(config).run_name
    again = replace(config, resume=True)
    assert RunDirectory(again).run_name == name
    RunDirectory(replace(again, timeout=5.0))  # decides neither result nor cost


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"epsilon": 2.0}, "--epsilon was 3.0 and is now 2.0"),
        ({"seed": 8}, "--seed was 7 and is now 8"),
        ({"seed": -1}, "--seed"),
        ({"data": "e.jsonl"}, "--data"),
        ({"group_size": 4}, "--group-size"),
        ({"test": "t.jsonl"}, "--test"),
    ],
)
def test_resuming_with_other_settings_names_the_option(config, change, option):
    RunDirectory(config)
    with pytest.raises(InputError, match="--resume with other settings") as caught:
        RunDirectory(replace(config, resume=True, **change))
    assert option in str(caught.value)


@pytest.mark.parametrize("damage", ["{", "[1]", "{}"])
def test_a_damaged_run_cannot_be_resumed(config, damage):
    folder = RunDirectory(config)
    folder.close()
    (folder.path / "config.json").write_text(damage)
    with pytest.raises(InputError):
        RunDirectory(replace(config, resume=True))
    (folder.path / "config.json").write_text(json.dumps(config.immutable_fields()))
    (folder.private / "seed.json").write_text(damage)
    with pytest.raises(InputError):
        RunDirectory(replace(config, resume=True))


def test_who_is_held_out_is_drawn_once(config):
    unseeded = replace(config, seed=-1)
    first = RunDirectory(unseeded)
    key = first.secret("hold-out coins")
    assert len(key) == 32
    first.close()
    assert RunDirectory(replace(unseeded, resume=True)).secret("hold-out coins") == key
    other = RunDirectory(replace(unseeded, out=config.out + "2"))
    assert other.secret("hold-out coins") != key
    # Every purpose has a key of its own, and none follows from a name or another key.
    found = {first.secret(purpose) for purpose in ("hold-out coins", "registry salt", "run name")}
    assert len(found) == 3
    seeded = [RunDirectory(replace(config, out=config.out + n)) for n in "34"]
    assert len({folder.secret("hold-out coins") for folder in seeded}) == 1  # it can be repeated
    assert len({folder.run_name for folder in seeded}) == 2


@pytest.mark.parametrize("damage", [None, "{", "{}", '{"hold-out coins": 3}'])
def test_a_run_without_its_keys_cannot_go_on(config, damage):
    folder = RunDirectory(replace(config, seed=-1))
    keys = folder.private / "keys.json"
    keys.unlink() if damage is None else keys.write_text(damage)
    with pytest.raises(InputError, match=r"keys\.json is (gone or )?damaged"):
        folder.secret("hold-out coins")


def one_digit(text):
    """A text with its last digit changed."""
    place = max(i for i, letter in enumerate(text) if letter.isdigit())
    return text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :]


def edited_key(purpose):
    def edit(folder, other):
        path = folder / "private" / "keys.json"
        keys = json.loads(path.read_text())
        path.write_text(json.dumps({**keys, purpose: one_digit(keys[purpose])}))

    return edit


def edited_config(**changes):
    def edit(folder, other):
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return edit


def swapped(name):
    def edit(folder, other):
        (folder / name).write_bytes((other / name).read_bytes())

    return edit


def edited_seed(folder, other):
    path = folder / "private" / "seed.json"
    path.write_text(json.dumps({"seed": json.loads(path.read_text())["seed"] + 1}))


@pytest.mark.parametrize("seed", [7, -1])
@pytest.mark.parametrize(
    "edit",
    [
        edited_key("hold-out coins"),
        edited_key("registry salt"),
        edited_key("run name"),
        edited_seed,
        edited_config(heldout=0.3),
        edited_config(clip_norm=0.5),
        edited_config(check=""),
        swapped("private/keys.json"),
        swapped("config.json"),
    ],
)
def test_keys_seed_and_settings_do_not_change_alone(config, seed, edit):
    """Else other users would be held out than before, or steps taken on other terms."""
    config = replace(config, seed=seed)
    folder, other = RunDirectory(config), RunDirectory(replace(config, out=config.out + "2"))
    folder.close()
    again = replace(config, resume=True)
    RunDirectory(again).close()
    edit(folder.path, other.path)
    # As the command line does it: what is not repeated is read from the folder.
    read = settings({"out": config.out, "resume": True})
    with pytest.raises(InputError, match=r"does not agree with seed\.json and keys\.json"):
        RunDirectory(read)
    assert RunLock(folder.path)  # the folder is free again


def test_discarding_what_was_not_used(config):
    folder = RunDirectory(config)
    folder.ledger_path.write_text('{"ledger": 1}\n')
    folder.discard_if_unused()
    folder.close()
    assert not folder.path.exists()
    folder = RunDirectory(config)
    with Ledger(
        folder.ledger_path, adjacency=Adjacency.ADD_REMOVE, delta=1e-5, budget=3.0
    ) as ledger:
        ledger.charge(HoldOut(config.heldout), round_=0, covers="coins")  # which tell nothing
    folder.discard_if_unused()
    assert not folder.path.exists()


def test_discarding_through_a_link_leaves_no_folder_behind(config, tmp_path):
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to("place")
    config = replace(config, out=str(tmp_path / "link"))
    with RunDirectory(config) as folder:
        assert folder.path == tmp_path / "place"
        folder.discard_if_unused()
    assert [path.name for path in tmp_path.iterdir()] == ["link"]
    assert RunDirectory(config).path.exists()  # and can be begun again


def test_a_run_that_released_something_is_never_discarded(config):
    folder = RunDirectory(config)
    folder.ledger_path.write_text('{"ledger": 1}\n{"round": 1}\n')
    folder.discard_if_unused()
    folder.close()
    assert folder.path.exists()
    folder.ledger_path.write_text('{"ledger": 2}\n')
    RunDirectory(replace(config, resume=True)).discard_if_unused()
    assert folder.path.exists(), "a resumed run made nothing that could be discarded"


def test_metrics_with_a_torn_line(config):
    folder = RunDirectory(config)
    for round_ in (1, 2, 3):
        folder.add_metrics(Disclosure.public({"round": round_}))
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 4, "eps')
    assert [line["round"] for line in folder.metrics()] == [1, 2, 3]
    folder.rewind_metrics(2)
    assert (folder.path / "metrics.jsonl").read_text() == '{"round": 1}\n{"round": 2}\n'
    folder.add_metrics(Disclosure.public({"round": 3}))
    assert [line["round"] for line in folder.metrics()] == [1, 2, 3]
    folder.rewind_metrics(0)
    assert folder.metrics() == []


def test_metrics_must_be_json(config):
    line = Disclosure.public({"round": 1, "epsilon": float("inf")})
    with pytest.raises(ValueError, match="JSON"):
        RunDirectory(config).add_metrics(line)


def test_the_private_log(config):
    folder = RunDirectory(config)
    folder.log_private({"round": 1, "cohort": 4})
    folder.log_private({"round": 1, "left out": "line 1\nline 2"})
    lines = (folder.private / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"round": 1, "cohort": 4},
        {"round": 1, "left out": "line 1\nline 2"},
    ]


def test_the_last_round_that_nodes_were_asked_in(config):
    folder = RunDirectory(config)
    assert folder.last_asked() == 0
    folder.log_private({"round": 1, "cohort": 4})
    folder.log_private({"round": 2, "cohort": 0})
    folder.log_private({"round": 3, "left out": "everybody"})
    with (folder.private / "log.jsonl").open("a") as file:
        file.write('{"round": 7, "coho')
    assert folder.last_asked() == 2


def test_a_run_that_goes_on_stands_on_no_fewer_private_runs(config):
    folder = RunDirectory(config)
    folder.keep_lineage(["b", "a"])
    folder.close()
    with RunDirectory(replace(config, resume=True)) as resumed:
        with pytest.raises(InputError, match=r"private run b had made.*privacy\.json"):
            resumed.keep_lineage(["a"])
        resumed.keep_lineage(["a", "b", "c"])
        with pytest.raises(InputError, match="private run c had made"):
            resumed.keep_lineage(["a", "b"])


def test_what_is_released_once_is_kept(config):
    folder, asked = RunDirectory(config), []

    def release():
        asked.append(1)
        return Released(7)

    assert [folder.once("group-size", release) for _ in range(2)] == [7, 7]
    folder.close()
    assert RunDirectory(replace(config, resume=True)).once("group-size", release) == 7
    assert asked == [1]
    assert folder.once("other", lambda: Released(3)) == 3
    assert folder.once("group-size", release) == 7


# What damaged files come to.


def test_damaged_json_is_one_line(config):
    folder = RunDirectory(replace(config, seed=-1))
    folder.write_private("nodes.json", {"nodes": 3})
    folder.once("group-size", lambda: Released(4))
    folder.write_result(Result(**RESULT))
    looks = {
        "result.json": lambda: Result.read(folder.path),
        "private/keys.json": lambda: folder.secret("hold-out coins"),
        "private/nodes.json": lambda: former_nodes(folder.path),
        "released.json": lambda: folder.once("group-size", lambda: Released(5)),
    }
    for name, look in looks.items():
        good = (folder.path / name).read_bytes()
        for damage in (b"", b"{", b"[1]", b"\xff", good[:-4], b"[" * 100_000):
            (folder.path / name).write_bytes(damage)
            with pytest.raises(InputError, match=f"{name} is damaged") as caught:
                look()
            assert "\n" not in str(caught.value)
        (folder.path / name).write_bytes(good)
        look()


def test_metrics_that_are_no_metrics_are_left_out(config):
    folder = RunDirectory(config)
    folder.add_metrics(Disclosure.public({"round": 1}))
    with (folder.path / "metrics.jsonl").open("ab") as file:
        file.write(b'7\n\xff\n{"round": "x"}\n[]\n')
    folder.add_metrics(Disclosure.public({"round": 2}))
    assert [line["round"] for line in folder.metrics()] == [1, 2]
