"""A small language model of the embedded population's public text, so that everything runs offline.

Words are its tokens: those of public exchanges on the population's topics, seen and unseen. They
carry no labels and come from no user (`sims.population.population.Population.texts`), so what is
learnt from them costs no privacy. About a million parameters, of GPT-2's kind or Llama's, trained
in minutes to predict the next word; what it learns of answers' wording is what a reward head or
LoRA starts from, and what a policy writes with.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from murmuration.preference.data.errors import InputError
from murmuration.sims.population.population import Population
from murmuration.sims.population.wording import WORD

_PAD, _UNKNOWN, _END = "[PAD]", "[UNK]", "[END]"
_SPLITS = ("train", "unseen-topics")
KINDS = ("gpt2", "llama")
"""Learnt places of words and plain layers, or rotated places, RMS norms and gated layers."""


@dataclass(frozen=True, kw_only=True)
class TinyBase:
    """Shape and training of the model.

    Raises:
        InputError: another kind, a number that is not positive, or a width that heads do not
            divide.
    """

    kind: str = "gpt2"  # one of `KINDS`
    width: int = 128
    layers: int = 4
    heads: int = 4
    context: int = 192
    epochs: int = 2
    batch: int = 32  # texts
    rate: float = 2e-3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"--architecture must be one of {', '.join(KINDS)}; got {self.kind!r}")
        if not self.rate > 0:
            raise InputError(f"--learning-rate must be positive; got {self.rate}")
        for name in ("width", "layers", "heads", "context", "epochs", "batch"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.width % self.heads:
            raise InputError(f"a width of {self.width} is no multiple of the {self.heads} heads")


def public_texts(population: Population, count: int) -> Iterator[tuple[str, str, str]]:
    """Yield ``count`` exchanges of a population, half on the topics of training and half on
    others."""
    for split in _SPLITS:
        yield from population.texts(split, -(-count // len(_SPLITS)))


def build(
    out: str | Path,
    shape: TinyBase,
    texts: Iterable[tuple[str, str, str]],
    progress: Callable[[int, int, float], None] = lambda *_: None,
) -> float:
    """Train the model and save it and its tokenizer in ``out``; the last hundred steps' mean loss.

    ``texts`` are public prompts with two answers each (``public_texts``), whose words are all that
    it will know. ``progress`` is told the step, how many there are, and the loss.

    Raises:
        InputError: the extra is not installed, or the folder holds something.
    """
    if find_spec("transformers") is None:
        raise InputError("a base needs transformers: pip install 'murmuration-rlhf[lm]'")
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not empty; choose another folder")
    exchanges = [(prompt, answer) for prompt, *answers in texts for answer in answers]
    words = _tokenizer(exchanges)
    # The end of text, of which a reward reads nothing, a policy must know.
    whole = [f"{prompt}\n\n{answer} {_END}" for prompt, answer in exchanges]
    texts_TL = [torch.tensor(ids[-shape.context :]) for ids in words(whole)["input_ids"]]
    pad, end = (words.convert_tokens_to_ids(token) for token in (_PAD, _END))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(shape.seed)
        model = _network(shape, len(words), pad, end)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01, betas=(0.9, 0.98))
    batches = list(_batches(np.array([len(ids_L) for ids_L in texts_TL]), shape))
    losses: list[float] = []
    for step, texts in enumerate(batches):
        done = step / len(batches)
        rising = min(1.0, (step + 1) / max(1.0, 0.05 * len(batches)))
        optimizer.param_groups[0]["lr"] = shape.rate * rising * (1.0 - 0.95 * done)
        ids = pad_sequence([texts_TL[t] for t in texts], batch_first=True, padding_value=pad)
        there = pad_sequence([torch.ones_like(texts_TL[t]) for t in texts], batch_first=True) > 0
        logits = model(input_ids=ids, attention_mask=there.long()).logits[:, :-1]
        following = torch.where(there, ids, -100)[:, 1:]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        progress(step + 1, len(batches), losses[-1])
    folder.mkdir(parents=True, exist_ok=True)
    model.eval().save_pretrained(folder)
    words.save_pretrained(folder)
    return float(np.mean(losses[-100:]))


def _network(shape: TinyBase, words: int, pad: int, end: int) -> Any:
    import transformers

    special: Any = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": pad}
    if shape.kind == "llama":
        config = transformers.LlamaConfig(
            vocab_size=words,
            max_position_embeddings=shape.context,
            hidden_size=shape.width,
            intermediate_size=shape.width * 8 // 3,  # as many weights as plain layers have
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            tie_word_embeddings=True,
            **special,
        )
        return transformers.LlamaForCausalLM(config)
    config = transformers.GPT2Config(
        vocab_size=words,
        n_positions=shape.context,
        n_embd=shape.width,
        n_layer=shape.layers,
        n_head=shape.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        **special,
    )
    return transformers.GPT2LMHeadModel(config)


def _batches(lengths_T: np.ndarray, shape: TinyBase) -> Iterator[np.ndarray]:
    """Texts of about equal length together, batches in random order, each text once an epoch."""
    generator = np.random.default_rng(shape.seed)
    for _ in range(shape.epochs):
        order = np.argsort(lengths_T + generator.uniform(0, 4, len(lengths_T)))
        parts = np.array_split(order, max(1, len(order) // shape.batch))
        yield from (parts[part] for part in generator.permutation(len(parts)))


def _tokenizer(exchanges: list[tuple[str, str]]) -> Any:
    """A tokenizer of the words (and marks) in these texts, in lower case."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    texts = (text.removesuffix(_END) for pair in exchanges for text in pair)
    counts = Counter(word for text in texts for word in WORD.findall(text.lower()))
    listed = [_PAD, _UNKNOWN, _END, *sorted(counts, key=lambda word: (-counts[word], word))]
    words = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(listed)}, unk_token=_UNKNOWN)
    )
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Split(Regex(WORD.pattern), "removed", invert=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token=_PAD, unk_token=_UNKNOWN, eos_token=_END
    )
