"""Names of a hub that stand in files: nobody is asked for them unless the person says so."""

import json
import socket

import numpy as np
import pytest
from stand_ins.hub import TOKEN, hub

from murmuration import online
from murmuration.client.store import UserStore
from murmuration.preference.base_names import last_name, name_for, place_of
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.loading import load_data
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.features.words import DEFINITION
from murmuration.preference.language.likelihood import load_scorer
from murmuration.preference.online import hub_name
from murmuration.preference.reward import RewardModel

NAMED = "somebody/encoder"
ROW = {"user_id": "u", "prompt": "p", "chosen": "a", "rejected": "b"}


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """The requests that a stand-in hub gets; and names that were looked up."""
    looked_up, lookup = [], socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *a, **b: looked_up.append(a[0]) or lookup(*a, **b)
    )
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1")  # which can be looked up
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    # What fails is asked again after a while, and longer each time: here at once.
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    with hub(monkeypatch) as there:
        yield there.requests, looked_up


def linear(folder):
    """A linear reward that names an encoder of a hub."""
    RewardModel(np.zeros(HashingFeatures().dimension), HashingFeatures()).save(folder)
    config = json.loads((folder / "config.json").read_text())
    features = {"kind": "encoder", "path": NAMED, "words": DEFINITION, "max_tokens": 8}
    (folder / "config.json").write_text(json.dumps({**config, "features": features}))


def adapter(folder, about=None):
    """A language model's folder that names its base; of ours, or of peft alone."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": NAMED}))
    if about:
        base = {"path": NAMED, "max_tokens": 8, "batch_tokens": 64, **about}
        told = {"format": "murmuration-language-reward-1", "model": "btl", "base": base}
        (folder / "murmuration.json").write_text(json.dumps(told))


FOLDERS = {
    "a linear model's encoder": linear,
    "a reward's base": lambda folder: adapter(folder, {"task": "reward"}),
    "a policy's base": lambda folder: adapter(folder, {"task": "policy"}),
}


@pytest.mark.parametrize("make", FOLDERS.values(), ids=FOLDERS)
def test_loading_a_folder_asks_no_hub(asked, tmp_path, make):
    """It asked, with the owner's token."""
    requests, looked_up = asked
    make(tmp_path / "model")
    with pytest.raises(InputError, match="a hub is not asked for what a file names"):
        load_scorer(tmp_path / "model")
    assert (requests, looked_up) == ([], [])
    with online(), pytest.raises(InputError, match=f"the hub gives no '{NAMED}'"):
        load_scorer(tmp_path / "model")
    assert requests and all(token is None for _, _, token in requests)
    requests.clear()
    looked_up.clear()
    with pytest.raises(InputError, match="own/choice"):  # the person's own word counts
        load_scorer(tmp_path / "model", "own/choice")
    assert requests or looked_up
    assert {token for _, _, token in requests} <= {f"Bearer {TOKEN}"}
    assert all("own/choice" in path for _, path, _ in requests)


def test_an_adapter_that_somebody_names_asks_for_no_other_base(asked, tmp_path):
    from murmuration.preference.language.loading import load_causal

    adapter(tmp_path / "model")
    with pytest.raises(InputError, match="a hub is not asked"):
        load_causal(str(tmp_path / "model"))
    assert asked == ([], [])


@pytest.mark.parametrize(
    "described",
    [
        {"kind": "encoder", "path": NAMED, "words": DEFINITION},
        {"kind": "language-model", "path": NAMED, "train": "head"},
    ],
)
def test_a_node_asks_no_hub_for_what_a_server_names(asked, described):
    store = UserStore(Judgements.from_rows([ROW]), place=-1)
    with pytest.raises(InputError, match="a hub is not asked"):
        store.examples(json.dumps(described))
    assert asked == ([], [])


def test_a_node_asks_no_hub_for_its_data(asked):
    with pytest.raises(InputError, match="a node asks no hub"):
        load_data("reward", NAMED, on_bad_rows="isolate")
    assert asked == ([], [])


def test_a_run_file_asks_no_hub(asked, cli, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "")
    (tmp_path / "run.toml").write_text(f'features = "{NAMED}"\nepsilon = 1.0\nrounds = 2\n')
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    data = ["--data", tmp_path / "rows.jsonl", "--out", tmp_path / "run"]
    code, _, lines = cli("run", "--config", tmp_path / "run.toml", *data)
    assert (code, asked) == (2, ([], [])) and NAMED in lines[0]


def test_the_switch_of_a_command_ends_with_it(asked, cli, tmp_path):
    requests, _ = asked
    linear(tmp_path / "model")
    for more, gives in ((["--online"], "the hub gives no"), ([], "a hub is not asked")):
        code, _, lines = cli("score", tmp_path / "model", "--prompt", "p", "--response", "r", *more)
        assert code == 2 and len(lines) == 1 and gives in lines[0], lines
        assert bool(requests) == bool(more)
        requests.clear()


def test_what_the_cache_has_is_taken_and_goes_by_its_name(asked, tmp_path):
    revision = "a" * 40
    repository = tmp_path / "cache" / "models--somebody--encoder"
    here = repository / "snapshots" / revision
    here.mkdir(parents=True)
    (here / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision)
    assert place_of(NAMED, tmp_path) == str(here)
    assert hub_name(here) == name_for(str(here), tmp_path) == last_name(str(here)) == NAMED
    assert asked == ([], [])
