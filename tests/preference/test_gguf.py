import errno
from pathlib import Path

import pytest
import torch
import transformers

from murmuration.preference.base_names import last_name, name_for, place_of, resolve_base
from murmuration.preference.data.errors import InputError
from murmuration.preference.gguf import SMOLLM2, converted, has_smollm2, is_packaged, origin_of
from murmuration.preference.language.loading import load_causal

pytest.importorskip("gguf")
from stand_ins.gguf_file import WORDS, package_gguf, write_gguf


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MURMURATION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_file_is_a_base_with_its_own_weights(tmp_path, cache):
    written = write_gguf(tmp_path / "tiny.gguf")
    tokenizer, model = load_causal(resolve_base(str(tmp_path / "tiny.gguf")))
    assert tokenizer.encode("ab") == [WORDS.index("ab")]
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")
    down = model.model.layers[1].mlp.down_proj.weight
    assert torch.equal(down, torch.from_numpy(written["blk.1.ffn_down.weight"]))
    assert torch.equal(
        model.get_input_embeddings().weight, torch.from_numpy(written["token_embd.weight"])
    )
    assert down.dtype == torch.float32


def test_it_is_converted_once_and_says_what_it_was(tmp_path, cache):
    write_gguf(tmp_path / "tiny.gguf")
    folder = converted(str(tmp_path / "tiny.gguf"))
    before = (folder / "model.safetensors").stat()
    assert converted(str(tmp_path / "tiny.gguf")) == folder
    assert (folder / "model.safetensors").stat() == before
    origin = origin_of(folder)
    assert (origin["name"], origin["license"]) == ("Tiny", "apache-2.0")
    assert folder.name == f"tiny.gguf-{origin['sha256'][:16]}"
    assert not is_packaged(folder)
    assert [*cache.glob("models/.new-*")] == []


def test_another_file_of_the_same_name_is_another_model(tmp_path, cache):
    write_gguf(tmp_path / "tiny.gguf")
    first = converted(str(tmp_path / "tiny.gguf"))
    write_gguf(tmp_path / "tiny.gguf", licence="mit")
    second = converted(str(tmp_path / "tiny.gguf"))
    assert first != second
    assert origin_of(second)["license"] == "mit"


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF" + b"\xff" * 4096, b"not a model", "cut"])
def test_what_cannot_be_read_is_refused_in_a_line_and_leaves_nothing(tmp_path, cache, content):
    file = tmp_path / "broken.gguf"
    write_gguf(file)
    file.write_bytes(file.read_bytes()[:-5000] if content == "cut" else content)
    with pytest.raises(InputError, match=r"broken\.gguf") as refused:
        resolve_base(str(file))
    assert "\n" not in str(refused.value)
    assert [*cache.glob("models/*")] == []


def test_a_full_disk_leaves_nothing_half_written(tmp_path, cache, monkeypatch):
    write_gguf(tmp_path / "tiny.gguf")

    def full(tokenizer, folder, **settings):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(transformers.PreTrainedTokenizerBase, "save_pretrained", full)
        with pytest.raises(InputError, match="No space left on device"):
            resolve_base(str(tmp_path / "tiny.gguf"))
    assert [*cache.glob("models/*")] == []
    assert load_causal(resolve_base(str(tmp_path / "tiny.gguf")))


def test_without_a_cache_it_says_what_to_set(tmp_path, monkeypatch):
    monkeypatch.setenv("MURMURATION_CACHE", "")
    write_gguf(tmp_path / "tiny.gguf")
    with pytest.raises(InputError, match="MURMURATION_CACHE"):
        resolve_base(str(tmp_path / "tiny.gguf"))


@pytest.fixture
def packaged(tmp_path, cache, monkeypatch):
    """A tiny model in the place of the packaged one."""
    package_gguf(tmp_path, monkeypatch)


def test_the_packaged_model_goes_by_one_word(tmp_path, packaged):
    assert has_smollm2()
    place = resolve_base(SMOLLM2)
    assert load_causal(place)[1].config.model_type == "llama"
    # Under that word another machine finds its own: a path of this one would tell of it.
    assert name_for(place, tmp_path / "run" / "model") == last_name(place) == SMOLLM2
    assert place_of(SMOLLM2, tmp_path) == place_of("", tmp_path, given=SMOLLM2) == place


def test_without_the_package_it_says_how_to_install(cache, monkeypatch):
    monkeypatch.setattr("murmuration.preference.gguf.find_spec", lambda name: None)
    assert not has_smollm2()
    with pytest.raises(InputError, match=r"smollm2.*pip install 'murmuration-rlhf\[smollm\]'"):
        resolve_base(SMOLLM2)


@pytest.mark.parametrize("name", ["smollm2.gguf", "smollm2-360m.gguf", "smollm2-135m.GGUF"])
def test_another_file_is_not_taken_for_the_packaged_model(tmp_path, packaged, name):
    write_gguf(tmp_path / name, licence="mit")
    place = resolve_base(str(tmp_path / name))
    assert origin_of(Path(place))["license"] == "mit"
    assert not is_packaged(Path(place))
    assert is_packaged(Path(resolve_base(SMOLLM2)))
    for name in (name_for(place, tmp_path / "run" / "model"), last_name(place)):
        assert name != SMOLLM2


def test_a_folder_of_ones_own_is_not_taken_for_it():
    assert not is_packaged(Path("/home/me/models/smollm2-sft"))
    assert not is_packaged(Path("/home/me/models/smollm2-0123456789abcdef/model"))
