"""The small language model that is made here."""

import json
from dataclasses import replace

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.generation import Writer
from murmuration.sims.population.population import Population
from murmuration.sims.population.tiny_language_model import TinyBase, build, public_texts

pytest.importorskip("transformers")

SMALL = TinyBase(width=16, layers=1, heads=2, epochs=3, batch=8, rate=1e-2)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder, losses = tmp_path_factory.mktemp("base") / "b", []
    build(
        folder, SMALL, public_texts(Population(), 40), lambda step, steps, loss: losses.append(loss)
    )
    return folder, losses


def test_it_learns_to_predict_words(made):
    _, losses = made
    assert losses[-1] < 0.9 * losses[0]


def test_it_is_a_base(made):
    base = LanguageBase(BaseSettings(str(made[0])))
    prompt, first, _ = next(Population().texts("train", 1))
    tokens = base.texts([prompt], [first])
    words = base.tokenizer.convert_ids_to_tokens(tokens.ids.tolist())
    assert "[UNK]" not in words
    assert words[:3] == prompt.lower().split()[:3]


def test_the_same_seed_gives_the_same_model(made, tmp_path):
    build(tmp_path / "again", SMALL, public_texts(Population(), 40))
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / "again" / name).read_bytes() == (made[0] / name).read_bytes()


def test_an_occupied_folder_is_refused(made):
    with pytest.raises(InputError, match="not empty"):
        build(made[0], SMALL, public_texts(Population(), 40))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epochs": 0}, "epochs must be"),
        ({"width": 17}, "multiple of"),
        ({"kind": "bert"}, "--architecture"),
        ({"rate": 0.0}, "--learning-rate"),
    ],
)
def test_shapes_that_cannot_be(changes, said):
    with pytest.raises(InputError, match=said):
        TinyBase(**changes)


def test_of_another_kind(tmp_path):
    losses = []
    shape = replace(SMALL, kind="llama")
    build(
        tmp_path / "b",
        shape,
        public_texts(Population(), 40),
        lambda step, steps, loss: losses.append(loss),
    )
    assert losses[-1] < 0.9 * losses[0]
    assert json.loads((tmp_path / "b" / "config.json").read_text())["model_type"] == "llama"
    assert LanguageBase(BaseSettings(str(tmp_path / "b"), task="sft")).dimension > 0
    assert len(Writer.load(tmp_path / "b").write(["What now?"] * 3)) == 3


def test_the_command(cli, tmp_path):
    code, out, _ = cli(
        "init", "base", "--out", tmp_path / "b", "--exchanges", 10,
        "--epochs", 1, "--json",
    )  # fmt: skip
    assert code == 0
    assert json.loads(out)["loss"] > 0
    assert (tmp_path / "b" / "model.safetensors").exists()
