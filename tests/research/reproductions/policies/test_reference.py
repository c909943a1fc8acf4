"""The reference of reruns: made once where it may be kept, and again where it is damaged."""

import json
from pathlib import Path

import pytest

from murmuration.preference.language.generation import Sampling, Writer
from murmuration.research.reproductions.policies import reference as module
from murmuration.research.reproductions.policies.reference import reference
from murmuration.sims.population.population import Population
from murmuration.sims.population.tiny_language_model import TinyBase

pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def made(monkeypatch):
    """How often one was."""
    times, honest = [], module.build

    def build(*given):
        times.append(given)
        return honest(*given)

    monkeypatch.setattr(module, "SHAPE", TinyBase(width=16, layers=1, heads=2, epochs=1))
    monkeypatch.setattr(module, "build", build)
    return times


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MURMURATION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def texts(count=4):
    return Population().texts("train", count)


def contents(path):
    return {file.name: file.read_bytes() for file in sorted(Path(path).iterdir())}


def test_without_a_cache_it_is_there_for_as_long_as_it_is_needed(monkeypatch):
    monkeypatch.delenv("MURMURATION_CACHE", raising=False)
    with reference(texts()) as path:
        assert Writer.load(path).write(["What now?"], Sampling(max_new_tokens=2))
    assert not Path(path).exists()


def test_it_is_made_once_for_the_same_texts_and_shape(cache, made, monkeypatch):
    with reference(texts()) as first:
        before = contents(first)
    with reference(texts()) as again:
        assert Writer.load(again).write(["What now?"], Sampling(max_new_tokens=2))
    assert (len(made), again, contents(again)) == (1, first, before)
    with reference(texts(6)) as other:
        assert other != first
    monkeypatch.setattr(module, "SHAPE", TinyBase(width=16, layers=1, heads=2, epochs=2))
    with reference(texts()) as longer:
        assert longer not in (first, other)
    assert len(made) == 3


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "reference.json"])
@pytest.mark.parametrize("how", ["changed", "gone"])
def test_a_damaged_one_is_made_again(cache, made, name, how):
    with reference(texts()) as path:
        before = contents(path)
    file = Path(path) / name
    if how == "gone":
        file.unlink()
    else:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    with reference(texts()) as again:
        assert contents(again) == before
    assert (len(made), again) == (2, path)


def test_one_that_was_being_made_when_its_process_died_is_made_anew(cache, made, monkeypatch):
    def killed(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "build", killed)
        with pytest.raises(KeyboardInterrupt), reference(texts()):
            pass
    assert [entry.suffix for entry in cache.iterdir()] == [".lock"]
    place = next(cache.iterdir()).stem
    (cache / f".{place}.0000.new").mkdir()  # as a kill leaves it, which lets nobody tidy up
    with reference(texts()) as path:
        about = json.loads((Path(path) / "reference.json").read_text())
    assert about["digest"] == module.digest_of(Path(path))
    assert sorted(entry.name for entry in cache.glob("*reference*")) == [place, f"{place}.lock"]
    assert not [*cache.glob(".reference*")]


def test_where_it_cannot_be_kept_it_is_made_for_as_long_as_it_is_needed(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MURMURATION_CACHE", str(tmp_path / "file"))
    with reference(texts()) as path:
        assert (Path(path) / "config.json").exists()
    assert not Path(path).exists()
