"""Which base a run was begun with: recorded, the same at nodes, and the same when it goes on."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from local_runs import LORA, run
from safetensors.torch import load_file, save_file

from murmuration.client.app import app as client_app
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.base import settings as base_settings
from murmuration.preference.language.checkpoint import digest_of
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid

pytestmark = [pytest.mark.usefixtures("quick_runs"), pytest.mark.settings(**LORA)]


@pytest.fixture
def on_a_base(config, tmp_path):
    """Settings of a run on a base that may be changed."""
    shutil.copytree(config.base, tmp_path / "base")
    return replace(config, base=str(tmp_path / "base"))


def change(folder):
    file = Path(folder) / "model.safetensors"
    tensors = load_file(file)
    tensors["transformer.wte.weight"][0, 0] += 1.0
    save_file(tensors, file, metadata={"format": "pt"})


@pytest.mark.parametrize("part", ["lora", "head"])
def test_it_stands_in_result_and_folder(on_a_base, part):
    result = run(replace(on_a_base, train=part, lora_rank=2 if part == "lora" else 0))
    digest = digest_of(Path(on_a_base.base))
    assert result["features"].get("attention") == ("sdpa" if part == "lora" else None)
    assert result["features"]["digest"] == digest
    kept = json.loads((Path(on_a_base.out) / "base.json").read_text())
    assert kept == {
        "path": on_a_base.base, "digest": digest, "revision": "", "dtype": "float32",
        **({"layers": "all"} if part == "lora" else {}),
    }  # fmt: skip
    about = json.loads((Path(on_a_base.out) / "model" / "murmuration.json").read_text())
    assert about["base"]["digest"] == digest


def test_a_run_goes_on_in_the_type_that_it_was_begun_in(on_a_base, broken_off, monkeypatch):
    broken_off(on_a_base, after=1)
    again = replace(on_a_base, resume=True)
    with pytest.raises(InputError, match="dtype"):
        run(replace(again, dtype="bfloat16"))
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(base_settings, "usual_dtype", lambda: "bfloat16")
        with pytest.raises(InputError, match=r"dtype bfloat16 here .* begun with float32"):
            run(again)
    assert run(again)["features"]["dtype"] == "float32"


def test_a_broken_base_is_refused_by_nodes_where_the_server_does_not_read_it(on_a_base):
    file = Path(on_a_base.base) / "model.safetensors"
    tensors = load_file(file)
    del tensors["transformer.h.0.attn.c_attn.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    for test in (on_a_base.test, ""):
        with pytest.raises(InputError, match=r"it lacks .*h\.0\.attn\.c_attn") as refused:
            run(replace(on_a_base, test=test))
        assert "\n" not in str(refused.value)
        assert not Path(on_a_base.out).exists()


def test_a_linear_run_has_none(on_a_base):
    run(replace(on_a_base, base="", lora_rank=0))
    assert not (Path(on_a_base.out) / "base.json").exists()


def test_a_run_goes_on_with_the_base_that_it_was_begun_with(on_a_base, broken_off):
    broken_off(on_a_base, after=1)
    change(on_a_base.base)
    with pytest.raises(InputError, match="--resume with another base"):
        run(replace(on_a_base, resume=True))


def test_a_node_with_another_base_stops_the_run_before_its_first_charge(on_a_base):
    class Elsewhere(LocalGrid):
        """Nodes whose base changed after the server had read its own."""

        def push_messages(self, messages):
            change(on_a_base.base)
            return super().push_messages(messages)

    with pytest.raises(InputError, match="another model is here than the one that was stated"):
        run_training(on_a_base, Elsewhere(client_app, 1, on_a_base.to_run_config()))
    assert not Path(on_a_base.out).exists()  # nothing was charged
