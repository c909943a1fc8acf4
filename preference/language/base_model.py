"""A transformer that is trained: to give a response its reward, or to say the next token.

For a reward, any causal language model or encoder that transformers loads, with a head of one
number on the last token (or on the pooled text, for an encoder). For the next token a causal model
with its own head. What is trained, by `train`:

- `lora`: low-rank changes of some linear layers (Hu et al. 2022, through peft), and a reward's
  head; the head for the next token stays, as it is often the embedding, too;
- `full`: every parameter;
- `head`: of a reward; see `preference.features.language_head`, which needs no backward pass.

θ is how far the trained parameters are from where they begin, as one vector: strategies, noise and
checkpoints see no layers. The head's weights are counted in units of 1/√(states' width): states are
that much longer than one, and in its own units the head would be most of every user's gradient, so
that clipping left nothing of the others. The beginning is public and the same everywhere: the
checkpoint; a head that it does not have begins at zero, so that every answer is worth the same;
LoRA's other factor is drawn from a fixed seed. The network runs in evaluation mode, without
dropout, in float32.

Needs the extra `murmuration[lm]`.

Legend: D trained parameters, R texts in a batch, L tokens.
"""

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from murmuration.preference.choices import TASKS, TRAINED
from murmuration.preference.data.judgements import InputError
from murmuration.preference.language.adapters import check_untied, merged_state
from murmuration.preference.language.checkpoint import check_same
from murmuration.preference.language.loading import (
    contents_of,
    load_causal,
    load_with_head,
    resolve_base,
    with_lora,
)
from murmuration.preference.language.tokens import TextTokens, Tokens
from murmuration.preference.language.user_gradients import UserBackward

KIND = "language-model"
#: A processor's caches hold no more: four times as many take half as long again.
_BATCH_TOKENS = {"cpu": 2048, "cuda": 32_768}
#: Of the next token there is a number for each word known: at most 1 GiB of these at a time.
_MOST_LOGITS = 2**28


@dataclass(frozen=True)
class BaseSettings:
    """Which model, and what of it is trained.

    Attributes:
        path: a local folder, or a name on a hub.
        train: one of `TRAINED`.
        rank: of LoRA's factors.
        alpha: their product is multiplied by alpha / rank; 0: as the rank.
        targets: names of the layers that LoRA changes, comma-separated, or `all-linear`; empty:
            queries and values, as peft or the layers' names have it for the architecture.
        max_tokens: the most tokens of prompt and response together.
        batch_tokens: tokens that are computed at a time, padding included; 0: as suits the device.
        memory: MiB for the gradients of single users that are kept at a time; at least one user's.
        task: one of `preference.choices.TASKS`.
        as_published: of `sft`: only the responses that were preferred, as X's appendix E has it.
        digest: SHA-256 of what is in ``path``; empty: whatever is there.
        revision: its commit, where it comes from a hub.
        merged: what ``path`` was merged into, where it is an adapter.

    Raises:
        InputError: a value out of range.
    """

    path: str
    train: str = "lora"
    rank: int = 16
    alpha: int = 0
    targets: str = ""
    max_tokens: int = 256
    batch_tokens: int = 0
    memory: int = 512
    task: str = "reward"
    as_published: bool = False
    digest: str = ""
    revision: str = ""
    merged: str = ""

    def __post_init__(self) -> None:
        if self.train not in TRAINED:
            raise InputError(f"--train must be one of {', '.join(TRAINED)}; got {self.train!r}")
        if self.task not in TASKS:
            raise InputError(f"--task must be one of {', '.join(TASKS)}; got {self.task!r}")
        if self.task != "reward" and self.train == "head":
            raise InputError(
                f"--task {self.task} has no head of its own to train: use --train lora or full"
            )
        for name, option in (
            ("rank", "--lora-rank"),
            ("max_tokens", "--max-tokens"),
            ("memory", "--user-memory"),
        ):
            if getattr(self, name) < 1:
                raise InputError(f"{option} must be at least 1; got {getattr(self, name)}")
        for name, option in (("batch_tokens", "--batch-tokens"), ("alpha", "--lora-alpha")):
            if getattr(self, name) < 0:
                raise InputError(f"{option} must be at least 1; got {getattr(self, name)}")


class LanguageBase:
    """A loaded model with the head that its task takes, and θ.

    Attributes:
        settings: as given, with an absolute path, and with digest and revision of what was found.
        model: the network (with LoRA layers where there are any).
        tokenizer: its own.
        texts: from texts to tokens.
        dimension: D.
        backward: gives each user's gradient by θ.
        device: where it runs; a GPU if there is one.
        batch_tokens: how many are computed at a time.
        head: name of a reward's head; empty where the next token is said.
        words: how many there are for the next token; 0 for a reward.

    Raises:
        InputError: the model cannot be loaded, or not be trained in this way.
    """

    def __init__(self, settings: BaseSettings) -> None:
        path, causal = resolve_base(settings.path), settings.task != "reward"
        found = contents_of(path)
        check_same(path, found.digest, settings.digest, settings.revision)
        self.settings = replace(settings, path=path, **vars(found))
        if causal:
            (self.tokenizer, self.model), self.head = load_causal(path), ""
            self.words: int = self.model.get_output_embeddings().weight.shape[0]
        else:
            self.tokenizer, self.model, self.head = load_with_head(path)
            width = self.model.get_submodule(self.head).in_features
            self._head_unit, self.words = 1.0 / math.sqrt(width), 0
        if settings.train == "lora":
            lora = {"rank": settings.rank, "alpha": settings.alpha or settings.rank}
            self.model = with_lora(self.model, path, settings.targets, **lora, causal=causal)
            if found.merged:  # so that it can be saved
                check_untied(self.model, path)
        self.model.eval()
        self.device = usual_device()
        self.model.to(self.device)
        self.batch_tokens = settings.batch_tokens or usual_batch(self.device, self.words)
        self.texts = TextTokens(self.tokenizer, context(self.settings, self.model.config))
        if settings.train == "head":  # by another way: nothing here is trained
            self.model.requires_grad_(False)
        self._trained = [name for name, p in self.model.named_parameters() if p.requires_grad]
        parameters = dict(self.model.named_parameters())
        self._parameters = [parameters[name] for name in self._trained]
        self.model.requires_grad_(False)
        self._initial_D = torch.cat(
            [torch.zeros(0), *(p.detach().cpu().reshape(-1) for p in self._parameters)]
        ).to(self.device)
        self.backward = UserBackward(self.model, self._trained)
        self.dimension = self.backward.dimension
        self._causal = not self.texts.pairs
        self._positions = _takes(self.model, "position_ids")
        kinds = getattr(self.model.config, "type_vocab_size", 0)
        self._segments = self.texts.pairs and kinds > 1 and _takes(self.model, "token_type_ids")

    @property
    def trained(self) -> Sequence[torch.nn.Parameter]:
        """The trained parameters, in the order of θ."""
        return self._parameters

    def put(self, theta_D: torch.Tensor | np.ndarray) -> None:
        """Move the network to θ."""
        change_D = torch.as_tensor(theta_D, dtype=torch.float32).to(self.device)
        if change_D.shape != self._initial_D.shape:
            raise ValueError(f"θ of {tuple(change_D.shape)} for {self.dimension} parameters")
        start = 0
        for name, parameter in zip(self._trained, self._parameters, strict=True):
            end = start + parameter.numel()
            moved = self._initial_D[start:end] + self._unit(name) * change_D[start:end]
            parameter.data.copy_(moved.view(parameter.shape))
            start = end

    def random_theta(self) -> torch.Tensor:
        """A θ at which nothing is zero, (D,): a head, and changes of the rest by about a third.

        Drawn from a fixed seed.
        """
        generator, parts = torch.Generator().manual_seed(0), []
        for name, parameter in zip(self._trained, self._parameters, strict=True):
            drawn = torch.randn(parameter.numel(), generator=generator)
            of_head = self._unit(name) != 1.0
            wide = parameter.shape[-1] if parameter.ndim > 1 else 10
            parts.append(drawn if of_head else drawn / (3.0 * math.sqrt(wide)))
        return torch.cat([torch.zeros(0), *parts])

    @contextmanager
    def differentiable(self) -> Iterator[dict[str, torch.nn.Parameter]]:
        """The trained parameters by name, which have gradients of their own within, as usual."""
        try:
            for parameter in self._parameters:
                parameter.requires_grad_(True)
            yield dict(zip(self._trained, self._parameters, strict=True))
        finally:
            for parameter in self._parameters:
                parameter.requires_grad_(False)
                parameter.grad = None

    def to_theta(self, grads_BD: torch.Tensor) -> torch.Tensor:
        """Gradients by the parameters as gradients by θ; in place, (B, D)."""
        start = 0
        for name, parameter in zip(self._trained, self._parameters, strict=True):
            end = start + parameter.numel()
            if (unit := self._unit(name)) != 1.0:
                grads_BD[:, start:end] *= unit
            start = end
        return grads_BD

    def _unit(self, name: str) -> float:
        """What θ's numbers for a parameter are counted in."""
        of_head = self.head and self.head in name and name.endswith("weight")
        return self._head_unit if of_head else 1.0

    def rewards(self, tokens: Tokens, texts_R: np.ndarray) -> torch.Tensor:
        """Rewards of some texts at the θ that was put last, (R,)."""
        ids_RL, mask_RL = tokens.batch(texts_R, self.tokenizer.pad_token_id)
        inputs = self.inputs(tokens, texts_R, ids_RL, mask_RL)
        with out_of_memory_advice():
            return self.model(**inputs).logits[:, 0].float()

    def next_tokens(self, tokens: Tokens, texts_R: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """What is said of the tokens that follow, at the θ that was put last, (R, L, V), and the
        texts' own tokens, (R, L)."""
        ids_RL, mask_RL = tokens.batch(texts_R, self.tokenizer.pad_token_id)
        inputs = self.inputs(tokens, texts_R, ids_RL, mask_RL)
        with out_of_memory_advice():
            return self.model(**inputs).logits.float(), inputs["input_ids"]

    def inputs(
        self, tokens: Tokens, texts_R: np.ndarray, ids_RL: torch.Tensor, mask_RL: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """What the network is called with for a batch."""
        inputs = {"input_ids": ids_RL}
        if not self._causal:  # what is on the right never reaches a causal model's tokens
            inputs["attention_mask"] = mask_RL.long()
        if self._segments:
            inputs["token_type_ids"] = tokens.segments(texts_R, ids_RL.shape[1])
        if self._positions:  # a row for each text: users must be told apart in this layer, too
            inputs["position_ids"] = torch.arange(ids_RL.shape[1]).expand(ids_RL.shape)
        return {name: value.to(self.device) for name, value in inputs.items()}

    def to_config(self) -> dict[str, Any]:
        """JSON-able description from which `language_base` makes an equal one."""
        return {"kind": KIND, **asdict(self.settings)}

    def write(self, folder: Path, theta_D: np.ndarray) -> None:
        """Save the model and its tokenizer at θ, for `from_pretrained`.

        With LoRA that is the adapter; on a base that an adapter was merged into, the whole model.
        """
        self.put(theta_D)
        self.save(folder)

    def save(self, folder: Path) -> None:
        """As `write`, where it is."""
        network: Any = self.model
        if self.settings.merged and self.settings.train == "lora":
            state = merged_state(network)
            network.get_base_model().save_pretrained(folder, state_dict=state)
        else:
            network.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def language_base(config: Mapping[str, Any]) -> LanguageBase:
    """The base that a config describes; a process keeps the last two, while their files stay.

    Raises:
        InputError: as `LanguageBase`, or another model is here than the one described.
    """
    arguments = {name: value for name, value in config.items() if name != "kind"}
    settings = BaseSettings(**arguments)
    path = resolve_base(settings.path)
    found = contents_of(path)
    check_same(path, found.digest, settings.digest, settings.revision)
    return _kept(replace(settings, path=path, **vars(found)))


@lru_cache(maxsize=2)
def _kept(settings: BaseSettings) -> LanguageBase:
    return LanguageBase(settings)


@contextmanager
def out_of_memory_advice() -> Iterator[None]:
    """Where memory runs out, and nowhere else, say what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        raise InputError(
            "out of memory: lower --batch-tokens (what is computed at a time) or --user-memory "
            "(gradients of single users that are kept at a time)"
        ) from error


def _out_of_memory(error: BaseException) -> bool:
    """Whether memory could not be had: a device's, Python's, or that of torch on a processor, whose
    error has no type of its own."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    said = str(error)
    return "DefaultCPUAllocator" in said and (
        "can't allocate memory" in said or "not enough memory" in said
    )


def usual_device() -> torch.device:
    """A GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def usual_batch(device: torch.device, words: int) -> int:
    """Tokens to compute at a time, where for each a number for every one of ``words`` is made."""
    return min(_BATCH_TOKENS[device.type], max(1, _MOST_LOGITS // max(1, words)))


def context(settings: BaseSettings, config: Any) -> int:
    """The most tokens of one text: as asked for, and as the model has positions."""
    positions = getattr(config, "max_position_embeddings", None) or settings.max_tokens
    if config.model_type in ("roberta", "xlm-roberta", "camembert"):
        positions -= config.pad_token_id + 1  # their positions are counted from there
    return min(settings.max_tokens, positions)


def _takes(model: torch.nn.Module, argument: str) -> bool:
    """Whether the network's forward has an argument of this name."""
    inner = getattr(model, "base_model", model)
    network = getattr(inner, "model", model) if hasattr(model, "peft_config") else model
    return argument in inspect.signature(network.forward).parameters
