"""A folder sent by huggingface_hub's own client to a hub on this machine."""

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.reporting.hub import push

pytest.importorskip("huggingface_hub")
from stand_ins.hub import hub

# What it uses says this of itself.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>'")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "m" / "README.md").write_text("---\nlicense: mit\n---\n# A model\n")
    return tmp_path / "m"


def test_all_files_arrive_in_one_commit(folder, monkeypatch):
    with hub(monkeypatch) as there:
        url = push(folder, "ada/taste", private=True)
    assert url.endswith("/ada/taste/commit/" + "c" * 40)
    assert there.made["ada/taste"]["visibility"] == "private"
    assert there.files == {
        ("ada/taste", "main"): {file.name: file.read_bytes() for file in folder.iterdir()}
    }
    assert sum("/commit/" in path for _, path, _ in there.requests) == 1


def test_a_branch_and_a_second_time(folder, monkeypatch):
    with hub(monkeypatch) as there:
        push(folder, "ada/taste")
        push(folder, "ada/taste", revision="v2")
    assert ("ada/taste", "v2") in there.branches
    assert set(there.files) == {("ada/taste", "main"), ("ada/taste", "v2")}
    assert "visibility" not in there.made["ada/taste"]


def test_what_goes_wrong_is_one_line(folder, monkeypatch):
    with hub(monkeypatch) as there:
        monkeypatch.setenv("HF_TOKEN", "hf_wrong")
        with pytest.raises(
            InputError, match=r"ada/taste: cannot be sent: the hub does not know the token \(401\)"
        ):
            push(folder, "ada/taste")
        assert there.made == {}
    refused = pytest.raises(InputError, match="ada/taste: cannot be sent")
    with refused as caught, hub(monkeypatch) as there:
        there.refuses = 507
        push(folder, "ada/taste")
    assert "\n" not in str(caught.value)
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    with pytest.raises(InputError, match=r"sent: the hub cannot be reached: .*refused") as caught:
        push(folder, "ada/taste")
    assert "\n" not in str(caught.value)


def test_without_a_token_nothing_is_asked(folder, monkeypatch, tmp_path):
    from huggingface_hub import constants

    with hub(monkeypatch) as there:
        monkeypatch.delenv("HF_TOKEN")
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
        with pytest.raises(InputError, match="no token for the hub: set HF_TOKEN"):
            push(folder, "ada/taste")
        assert there.requests == []


@pytest.mark.parametrize("name", ["taste", "", "a/b/c", "../x", "ada/"])
def test_a_name_that_is_none(folder, name):
    with pytest.raises(InputError, match="give NAMESPACE/NAME"):
        push(folder, name)
