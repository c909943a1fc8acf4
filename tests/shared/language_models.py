"""Tiny language models with random weights, saved as anybody's would be, and models on them."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from murmuration.preference.bases import KINDS
from murmuration.preference.language import policy_fit
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.reward import save_language_model
from murmuration.preference.linear.gradients import windows

_TEXT = (
    "what now ? put some aside first . wait and compare prices keep the old one save it buy today "
    "! take loan , live on bet spend all of"
)
WORDS = _TEXT.split()


def tokenizer(pairs=False, chat=False):
    """A tokenizer of these words."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[EOS]", "[CLS]", "[SEP]", "[USER]", "[BOT]"]
    vocabulary = {word: i for i, word in enumerate([*special, *dict.fromkeys(WORDS)])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    if pairs:
        ends = [("[CLS]", 3), ("[SEP]", 4)]
        words.post_processor = processors.TemplateProcessing(
            "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ends
        )
        names |= {"cls_token": "[CLS]", "sep_token": "[SEP]"}
    else:
        names["eos_token"] = "[EOS]"
    made = PreTrainedTokenizerFast(tokenizer_object=words, **names)
    if chat:
        made.add_special_tokens({"additional_special_tokens": ["[USER]", "[BOT]"]})
        made.chat_template = (
            "{% for m in messages %}{{ '[USER] ' if m.role == 'user' else '[BOT] ' }}"
            "{{ m.content }} {% endfor %}{% if add_generation_prompt %}[BOT] {% endif %}"
        )
    if pairs:
        made.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    return made


def save_gpt2(folder, chat=False, **changes):
    """A causal model of GPT-2's kind, without a head."""
    from transformers import GPT2Config, GPT2LMHeadModel

    words = tokenizer(chat=chat)
    settings = {"n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 2} | changes
    config = GPT2Config(
        vocab_size=settings.pop("vocab_size", len(words)), bos_token_id=2, eos_token_id=2,
        pad_token_id=0, **settings,
    )  # fmt: skip
    return _save(GPT2LMHeadModel, config, words, folder)


def save_llama(folder, context=64, layers=2):
    """A causal model of Llama's kind: RMS norms, rotated positions, gated layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    words = tokenizer()
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=24, num_hidden_layers=layers,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=context,
        bos_token_id=2, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    return _save(LlamaForCausalLM, config, words, folder)


def save_bert(folder):
    """An encoder of BERT's kind."""
    from transformers import BertConfig, BertModel

    words = tokenizer(pairs=True)
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=64, pad_token_id=0,
    )  # fmt: skip
    return _save(BertModel, config, words, folder)


def save_other(folder, kind):
    """A model of one of the kinds in ``OTHERS``, as small as transformers lets it be."""
    import transformers

    encoder = kind in ENCODERS
    words = bytewise() if kind == "qwen2" else tokenizer(pairs=encoder)
    sizes = {
        "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64,
        "bos_token_id": 2, "eos_token_id": 2, "cls_token_id": 3, "sep_token_id": 4,
        "pad_token_id": words.pad_token_id,
    }  # fmt: skip
    settings = {"vocab_size": len(words)} | sizes | OTHERS[kind]
    config = transformers.AutoConfig.for_model(kind, **settings)
    made = transformers.AutoModel if encoder else transformers.AutoModelForCausalLM
    return _save(made.from_config, config, words, folder)


def bytewise():
    """A tokenizer of bytes, for kinds that make nothing of one of words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import Qwen2Tokenizer

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return Qwen2Tokenizer(
        tokenizer_object=made, pad_token="[PAD]", eos_token="[EOS]", unk_token="[PAD]"
    )


_EXPERTS = {
    "head_dim": 8, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 12,
}  # fmt: skip
_WINDOW = {"head_dim": 8, "sliding_window": 8}
#: Further kinds by transformers' names, and what their configuration wants beside sizes.
OTHERS = {
    "gptj": {"rotary_dim": 4},
    "gpt_neox": {},
    "gpt_bigcode": {},
    "opt": {"ffn_dim": 24, "word_embed_proj_dim": 16},
    "bloom": {},
    "mpt": {},
    "falcon": {"new_decoder_architecture": False},
    "mistral": {"head_dim": 8, "sliding_window": None},
    "mixtral": {**_EXPERTS, "sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "qwen3_moe": _EXPERTS,
    "gemma": {"head_dim": 8},
    "gemma2": _WINDOW,
    "gemma3_text": _WINDOW,
    "phi": {},
    "phi3": {"sliding_window": None},
    "olmo": {},
    "olmo2": {},
    "smollm3": {},
    "stablelm": {},
    "starcoder2": {"sliding_window": None},
    "cohere": {},
    "granite": {},
    "glm4": {"head_dim": 8},
    "roberta": {},
    "xlm-roberta": {},
    "distilbert": {"hidden_dim": 24},
    "deberta-v2": {},
    "electra": {"embedding_size": 16},
    "albert": {"embedding_size": 16},
    "mpnet": {},
    "modernbert": {"head_dim": 8, "local_attention": 8, "global_attn_every_n_layers": 2},
}
ENCODERS = (
    "roberta", "xlm-roberta", "distilbert", "deberta-v2", "electra", "albert", "mpnet",
    "modernbert",
)  # fmt: skip
SAVED = {
    **{kind: lambda folder, kind=kind: save_other(folder, kind) for kind in OTHERS},
    "gpt2": save_gpt2,
    "gpt2-chat": lambda folder: save_gpt2(folder, chat=True),
    "llama": save_llama,
    "bert": save_bert,
}


def _save(kind, config, words, folder):
    torch.manual_seed(0)
    model = kind(config)
    with torch.no_grad():
        for parameter in model.parameters():  # far from symmetric, so that mistakes show
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return str(Path(folder))


def saved_model(folder, path, train="lora", scale=0.2, **settings):
    """Save a model that was trained on a base, by a drawn θ; return its network."""
    base = LanguageBase(BaseSettings(path, train, **{"rank": 2, **settings}))
    drawn_D = np.random.default_rng(0).standard_normal(base.dimension)
    save_language_model(folder, base, base.theta() + scale * drawn_D.astype(np.float32))
    return base


def start(base, scale=0.1):
    """A θ of a base, drawn from a fixed seed."""
    return scale * torch.randn(base.dimension, generator=torch.Generator().manual_seed(0))


def taken(examples, most=3):
    """Up to so many examples of every user, and how many these are."""
    users = np.arange(len(examples.counts_U))
    return windows(examples.start_U, users, most, users.astype(np.uint64) * 7)


def model_on(base: Any) -> Any:
    """Return the model whose kind the base's own description names."""
    described = base.to_config()
    return KINDS[described["kind"], described.get("task", "reward")](base)


def log_likelihood(base, tokens, text):
    """Of what is scored of one text, token by token, in float64; and how many tokens that is."""
    ids = tokens.ids[tokens.start_T[text] : tokens.start_T[text + 1]].tolist()
    logs = base.model(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(dim=1)
    scored = range(max(1, int(tokens.second_T[text])), len(ids))
    return sum(logs[place - 1, ids[place]] for place in scored), len(scored)


#: How far apart two ways of computing a gradient of one of these models may be, as a share of its
#: length. In any order, a sum of n terms is wrong by at most n half units in the last place
#: (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2). Terms of the sums that a
#: number goes through, one after another, in each of two layers: 5 times 16 (two norms and three
#: products with a weight), 64 at most in the last product, 8 for attention's scores, some 20 each
#: for its softmax and its values; 66 in the last norm and the words; as many going back; at most
#: 200 tokens that are learnt from. That is 1,100; the rest is for terms of both signs, which are
#: larger than their sum. Roundings cancel, so the root of it is typical, about 35. Of 2,000, which
#: are 1.2e-4, a text of twenty that is left out, or counts twice, is some four hundred times.
ROUNDING = 2000 * float(np.finfo(np.float32).eps) / 2


def assert_equal_but_for_roundings(actual, expected):
    """Fail unless gradients, by two ways of computing, are as near as `ROUNDING` says."""
    assert len(actual) == len(expected) > 1  # of several steps: at first θ is zero
    for one_D, other_D in zip(actual, expected, strict=True):
        length, apart = float(other_D.norm()), float((one_D - other_D).norm())
        assert length > 0.01, "nothing is learnt"
        assert apart < ROUNDING * length, f"{apart / length:.1e} of the gradient's length apart"


def direction(step, shape):
    """Return what an optimizer is given in a step instead of a gradient: the same in every run."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(step))


def noted_gradients(patch, module):
    """Return a list of each step's gradient in a module that trains by `shortened_gradient`.

    As long as they are. Adam divides a small gradient by its own size, rounding and all; so what is
    compared is what it is given, and it is given other numbers, the same in every run. All runs are
    at the same θ in each step, to the last bit.
    """
    honest, gradients = policy_fit.shortened_gradient, []

    def noted(base, parameters):
        grad_D = honest(base, parameters)
        gradients.append(grad_D.double())
        return direction(len(gradients), grad_D.shape)

    patch.setattr(policy_fit, "_LONGEST", math.inf)
    patch.setattr(module, "shortened_gradient", noted)
    return gradients
