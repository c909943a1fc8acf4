"""A transformer that is trained: to give a response its reward, or to say the next token.

For a reward, any causal language model or encoder that transformers loads, with a head of one
number on the last token (or on the pooled text, for an encoder). For the next token a causal model
with its own head. What is trained, by `train`:

- `lora`: low-rank changes of some linear layers (Hu et al. 2022, through peft), and a reward's
  head; the head for the next token stays, as it is often the embedding, too;
- `full`: every parameter;
- `head`: of a reward; see `preference.features.language_head`, which needs no backward pass.

θ is how far the trained parameters are from where they begin, as one vector: strategies, noise and
checkpoints see no layers. Each parameter is counted in a unit of its own (`_unit_of`): equal noise
on all of θ then changes what a layer says by an equal share, however wide it is and of whatever
rank. In weights' own units noise would grow with the width, and the head would be most of every
user's gradient, so that clipping left nothing of the others. The beginning is public and the same
everywhere: the checkpoint; a head that it does not have begins at zero, so that every answer is
worth the same; LoRA's other factor is drawn from a fixed seed. The network runs in evaluation
mode, without dropout and without a cache of keys and values.

θ, where it begins and users' gradients are float32, whatever `dtype` the network computes in: what
is put into it is θ's sum with the beginning, rounded once. What is saved is not rounded.

Needs the extra `murmuration-rlhf[lm]`.

Legend: D trained parameters, R texts in a batch, L tokens.
"""

import inspect
import json
import math
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from murmuration.preference.base_names import name_for
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.frozen_states import FrozenStates
from murmuration.preference.language.adapter_config import name_base
from murmuration.preference.language.adapters import check_untied, merged_state, with_lora
from murmuration.preference.language.base.layers import (
    blocks_of,
    checkpointed,
    layers_of,
    trained_layers,
)
from murmuration.preference.language.base.lower_layers import LowerLayers
from murmuration.preference.language.base.settings import NOTHING, BaseSettings, resolved
from murmuration.preference.language.checkpoint import check_same
from murmuration.preference.language.loading import contents_of, load_causal, load_with_head
from murmuration.preference.language.machine import (
    last_digits,
    out_of_memory_advice,
    usual_batch,
    usual_device,
)
from murmuration.preference.language.tokens import TextTokens, Tokens
from murmuration.preference.language.user_gradients import UserBackward
from murmuration.preference.within import within

#: Of the next token there is a number for each word known: at most 256 MiB of these at a time.
MOST_LOGITS = 2**26
#: What gradients going back are multiplied by, and users' rows divided: float16 has no smaller
#: numbers than 6e-8. Powers of two change no digit.
_SCALES = {"float16": 2.0**10}
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
#: All that a text's states, behind any layer, depend on beside its tokens.
STATES_KNOWN_BY = ("digest", "merged", "dtype", "system")


class LanguageBase:
    """A loaded model with the head that its task takes, and θ.

    Args:
        settings: of the model and its training.
        weights: False for names, shapes and tokens alone: nothing is computed with it, and its
            network is on the meta device, where it takes no memory.

    Attributes:
        settings: as given, with an absolute path, the type of its numbers, and digest and revision
            of the files.
        model: the network (with LoRA layers where there are any).
        tokenizer: its own.
        texts: from texts to tokens.
        dimension: D.
        trained: its trained parameters, in the order of θ.
        scale: the factor of a loss's gradient before the backward pass.
        backward: gives each user's gradient by θ.
        device: where it runs; a GPU if there is one.
        attention: transformers' implementation: sdpa if the architecture has it, else eager.
        batch_tokens: the number of tokens computed at a time.
        most_logits: the most logits of next tokens at a time.
        lower: states below the first layer that LoRA changes; None where all are computed.
        head: name of a reward's head; empty for a causal language model.
        words: the number of possible next tokens; 0 for a reward.
        has_segments: whether the network gets segments for prompt and response.

    Raises:
        InputError: the model cannot be loaded, or not be trained in this way.
    """

    def __init__(self, settings: BaseSettings, weights: bool = True) -> None:
        settings, causal = resolved(settings), settings.task != "reward"
        self.settings, path = settings, settings.path
        self._dtype, self.scale = getattr(torch, settings.dtype), _SCALES.get(settings.dtype, 1.0)
        # Where everything is trained θ begins at what the checkpoint has, before it is rounded.
        read = torch.float32 if settings.train == "full" else self._dtype
        self.device = usual_device() if weights else torch.device("meta")
        if causal:
            (self.tokenizer, self.model), self.head = load_causal(path, read, weights), ""
            new: Collection[str] = ()
            self.words: int = self.model.get_output_embeddings().weight.shape[0]
        else:
            loaded = load_with_head(path, read, weights)
            self.tokenizer, self.model, self.head, new = loaded
            self.words = 0
        check_same(path, contents_of(path).digest, settings.digest)  # not replaced meanwhile
        if settings.checkpointing:
            checkpointed(self.model, path)
        if settings.train == "lora":
            lora = {"rank": settings.rank, "alpha": settings.alpha or settings.rank}
            trained = trained_layers(self.model, settings.layers, path)
            self.model = with_lora(
                self.model, path, settings.targets, **lora, layers=trained, causal=causal, new=new
            )
            if settings.merged:  # so that it can be saved
                check_untied(self.model, path)
        self.model.eval()
        self.attention = str(getattr(self.model.config, "_attn_implementation", None) or "eager")
        self.most_logits = MOST_LOGITS
        self.texts = TextTokens(self.tokenizer, context(settings, self.model), settings.system)
        if settings.train in ("head", NOTHING):  # the first by another way: nothing here is
            self.model.requires_grad_(False)
        if settings.train == "head":
            self._head.register_forward_pre_hook(_keep_states)
        self._names = [name for name, p in self.model.named_parameters() if p.requires_grad]
        parameters = dict(self.model.named_parameters())
        self.trained = [parameters[name] for name in self._names]
        self.model.requires_grad_(False)
        beginning = [p.detach().float().to(self.device).reshape(-1) for p in self.trained]
        self._initial_D = torch.cat([torch.zeros(0, device=self.device), *beginning])
        self._units = [_unit_of(parameter) for parameter in self.trained] if weights else []
        torch.nn.Module.to(self.model, self.device)
        for parameter in self.model.parameters():  # buffers stay: rotations are made of float32
            if parameter.is_floating_point():
                parameter.data = parameter.data.to(self._dtype)
        self.backward = UserBackward(self.model, self._names)
        self.dimension = self.backward.dimension
        self._in_batches: dict[int, LanguageBase] = {settings.batch_tokens: self}
        self._causal = not self.texts.pairs
        self._positions = _takes(self.model, "position_ids") and not _before_first(self.model)
        self._uncached = {"use_cache": False} if _takes(self.model, "use_cache") else {}
        kinds = getattr(self.model.config, "type_vocab_size", 0)
        self.has_segments = self.texts.pairs and kinds > 1 and _takes(self.model, "token_type_ids")
        self.lower = self._lower_states() if weights and settings.layers != "all" else None

    @cached_property
    def batch_tokens(self) -> int:
        """Tokens that are computed at a time."""
        return self.settings.batch_tokens or usual_batch(self.device)

    def in_batches(self, tokens: int) -> "LanguageBase":
        """The same network, computing ``tokens`` tokens at a time; 0: as suits the device."""
        if tokens == self.settings.batch_tokens:
            return self
        if tokens not in self._in_batches:
            other = self._in_batches[tokens] = copy(self)
            other.__dict__.pop("batch_tokens", None)
            other.settings = replace(self.settings, batch_tokens=tokens)
        return self._in_batches[tokens]

    def put(self, theta_D: torch.Tensor | np.ndarray) -> None:
        """Move the network to θ."""
        change_D = torch.as_tensor(theta_D, dtype=torch.float32).to(self.device)
        if change_D.shape != self._initial_D.shape:
            raise ValueError(f"θ of {tuple(change_D.shape)} for {self.dimension} parameters")
        start = 0
        for unit, parameter in zip(self._units, self.trained, strict=True):
            end = start + parameter.numel()
            moved = self._initial_D[start:end] + unit * change_D[start:end]
            parameter.data.copy_(moved.view(parameter.shape))
            start = end

    def theta(self) -> np.ndarray:
        """The network's current parameters as θ, (D,) float32: the inverse of `put`, up to
        rounding.
        """
        parts = [p.detach().float().reshape(-1) for p in self.trained]
        change_D = torch.cat([torch.zeros(0, device=self.device), *parts]) - self._initial_D
        sizes = [parameter.numel() for parameter in self.trained]
        return change_D.cpu().numpy() / np.repeat(np.array(self._units, np.float32), sizes)

    def random_theta(self) -> torch.Tensor:
        """A θ at which nothing is zero, (D,): a head, and changes of the rest by a third.

        Drawn from a fixed seed.
        """
        generator, parts = torch.Generator().manual_seed(0), []
        for name, parameter in zip(self._names, self.trained, strict=True):
            drawn = torch.randn(parameter.numel(), generator=generator)
            parts.append(drawn if self.is_of_head(name) else drawn / 3.0)
        return torch.cat([torch.zeros(0), *parts])

    @contextmanager
    def differentiable(self) -> Iterator[dict[str, torch.nn.Parameter]]:
        """The trained parameters by name, which have gradients of their own within, as usual."""
        try:
            for parameter in self.trained:
                parameter.requires_grad_(True)
            yield dict(zip(self._names, self.trained, strict=True))
        finally:
            for parameter in self.trained:
                parameter.requires_grad_(False)
                parameter.grad = None

    def to_theta(self, grads_BD: torch.Tensor) -> torch.Tensor:
        """Gradients by the parameters, ``scale`` times, as gradients by θ; in place, (B, D)."""
        if self.scale != 1.0:
            grads_BD /= self.scale
        start = 0
        for unit, parameter in zip(self._units, self.trained, strict=True):
            end = start + parameter.numel()
            if unit != 1.0:
                grads_BD[:, start:end] *= unit
            start = end
        return grads_BD

    def is_of_head(self, name: str) -> bool:
        """True if a trained parameter, or layer, belongs to a reward's head."""
        plain = f".{name}.".replace(".modules_to_save.default.", ".")  # as peft keeps one
        return bool(self.head) and f".{self.head}." in plain

    def rewards(self, tokens: Tokens, texts_R: np.ndarray) -> torch.Tensor:
        """Rewards of some texts at the θ that was put last, (R,)."""
        ids_RL, mask_RL = tokens.batch(texts_R, self.tokenizer.pad_token_id)
        inputs = self.inputs(tokens, texts_R, ids_RL, mask_RL)
        with self.computing(), self._entered(self._lower_of(tokens, texts_R)):
            return self.model(**inputs).logits.float()[:, 0]

    def head_states(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The input of the reward's head for R texts: of each token, (R, L, H), or the pooled state
        alone, (R, 1, H), of an encoder whose head reads one. Several threads may call this at a
        time.
        """
        states: list[torch.Tensor] = []
        with within(_head_reads, states):  # of this thread
            self.model(**inputs)
        return states[0] if states[0].ndim == 3 else states[0][:, None]

    def written(self, tokens: Tokens, texts_R: np.ndarray) -> dict[str, list[list[int]]]:
        """All inputs of the network for some texts, each by itself, by the network's names."""
        texts = texts_R.tolist()
        bounds = [slice(*tokens.start_T[text : text + 2].tolist()) for text in texts]
        result = {"input_ids": [tokens.ids[of_text].tolist() for of_text in bounds]}
        if self.has_segments:
            result["token_type_ids"] = [
                tokens.segments(np.array([text]), int(tokens.lengths_T[text]))[0].tolist()
                for text in texts
            ]
        return result

    def keep_lower(self, tokens: Tokens, texts_R: np.ndarray) -> None:
        """Compute what is below the first trained layer of some texts, where that is kept."""
        if self.lower is not None:
            with self.computing():
                self.lower.prepare(self.written(tokens, texts_R))

    def _lower_of(self, tokens: Tokens, texts_R: np.ndarray) -> torch.Tensor | None:
        return None if self.lower is None else self.lower.padded(self.written(tokens, texts_R))

    def _entered(self, lower_RLH: torch.Tensor | None) -> AbstractContextManager[None]:
        """Begin at the first trained layer, within, where there are states below."""
        return nullcontext() if lower_RLH is None else self._lower_layers.entered(lower_RLH)

    def _lower_states(self) -> FrozenStates | None:
        """The states below the first trained layer; None if no layer is below it, or the network
        cannot start there.
        """
        _, blocks = layers_of(self._network, self.settings.path, "--lora-layers")
        trained = trained_layers(self._network, self.settings.layers, self.settings.path)
        assert trained is not None  # or it would be all of them
        if not trained.start:
            return None
        layers = self._lower_layers = LowerLayers([*blocks], trained.start)
        ids_RL = torch.arange(min(8, self.texts.limit)).repeat(2, 1)
        segments_RL = torch.zeros_like(ids_RL) if self.has_segments else None
        tried = self.inputs_of(ids_RL, torch.ones_like(ids_RL), segments_RL)
        if not layers.can_be_entered(self._network.base_model, tried):
            return None

        def states(inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
            ids_BL = inputs["input_ids"]
            segments_BL = inputs.get("token_type_ids")
            whole = self.inputs_of(ids_BL, torch.ones_like(ids_BL), segments_BL)
            return layers.states(self.model, whole)

        known = {k: v for k, v in self.settings.described.items() if k in STATES_KNOWN_BY}
        network: Any = self.model
        with torch.no_grad():
            width = layers.states(self.model, tried).shape[2]
        return FrozenStates(
            states,
            device=self.device,
            dtype=self._dtype,
            width=width,
            words=len(network.get_input_embeddings().get_parameter("weight")),
            limit=self.texts.limit,
            terms=[json.dumps(known, sort_keys=True), str(trained.start), self.attention],
        )

    @property
    def _head(self) -> torch.nn.Linear:
        """A reward's head: the copy that is trained, where peft keeps one."""
        names = [name for name, _ in self.model.named_parameters() if self.is_of_head(name)]
        weight = next(n for n in names if n.endswith(".weight") and ".original_module." not in n)
        return self.model.get_submodule(weight.removesuffix(".weight"))  # type: ignore[return-value]

    def states(self, tokens: Tokens, texts_R: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """The states that predict the next tokens at the θ that was put last, (R, L, H), for
        `said`; and the texts' own tokens, (R, L).
        """
        ids_RL, mask_RL = tokens.batch(texts_R, self.tokenizer.pad_token_id)
        inputs = self.inputs(tokens, texts_R, ids_RL, mask_RL)
        with self.computing():
            lower_RLH = self._lower_of(tokens, texts_R)
        return self.next_states(inputs, lower_RLH), inputs["input_ids"]

    def next_states(
        self, inputs: Mapping[str, Any], lower_RLH: torch.Tensor | None = None
    ) -> torch.Tensor:
        """States that say the tokens that follow, (R, L, H), for `said`.

        Args:
            inputs: as of `inputs_of`.
            lower_RLH: what `lower_states` gave of the same; None: computed from the first layer on.
        """
        with self.computing():
            body = self._body  # which is tried from the first layer on
            with self._entered(lower_RLH):
                return self.model(**inputs).logits if body is None else body(**inputs)[0]

    def lower_states(self, inputs: Mapping[str, Any]) -> torch.Tensor:
        """Texts' states below the first trained layer, (R, L, H), without gradients; only where
        there is a ``lower``.

        Args:
            inputs: as of `inputs_of`.
        """
        with self.computing(), torch.no_grad():
            return self._lower_layers.states(self.model, inputs)

    @property
    def noting(self) -> Callable[[], AbstractContextManager[list[torch.Tensor]]] | None:
        """The context that records states below the first trained layer while the network runs, as
        `LowerLayers.noting`; None if there is no ``lower``.
        """
        return None if self.lower is None else self._lower_layers.noting

    def said(self, state_QH: torch.Tensor) -> torch.Tensor:
        """Logits of some tokens that follow, by their states, (Q, V) float32."""
        with self.computing():
            if self._body is None:
                return state_QH.float()
            return self._network.get_output_embeddings()(state_QH).float()

    @property
    def _network(self) -> Any:
        """The network without the wrapper of LoRA; its layers are inside."""
        network: Any = self.model
        return network.get_base_model() if hasattr(network, "peft_config") else network

    @cached_property
    def _body(self) -> Any:
        """The network below the head for the next token; None if the head's output is changed
        afterwards (capped or multiplied), so that the head alone does not give the logits.

        This is measured: each architecture's configuration has another name for it.
        """
        network = self._network
        ids_RL = torch.arange(min(8, self.words, self.texts.limit), device=self.device).repeat(2, 1)
        with torch.no_grad():
            whole_RLV = network(input_ids=ids_RL, **self._uncached).logits
            state_RLH = network.base_model(input_ids=ids_RL, **self._uncached)[0]
            same = torch.equal(network.get_output_embeddings()(state_RLH), whole_RLV)
        return network.base_model if same else None

    def computing(self) -> AbstractContextManager[None]:
        """Forward or backward through the network: with advice where memory runs out."""
        return out_of_memory_advice(torch.is_grad_enabled() and self._keeps_activations)

    @cached_property
    def _keeps_activations(self) -> bool:
        """True if ``checkpointing``, which is off, would lower the memory of a backward pass."""
        off = self.settings.train in ("lora", "full") and not self.settings.checkpointing
        return off and bool(blocks_of(self.model))

    def inputs(
        self, tokens: Tokens, texts_R: np.ndarray, ids_RL: torch.Tensor, mask_RL: torch.Tensor
    ) -> dict[str, Any]:
        """Arguments of the network for a batch."""
        segments_RL = tokens.segments(texts_R, ids_RL.shape[1]) if self.has_segments else None
        return self.inputs_of(ids_RL, mask_RL, segments_RL)

    def inputs_of(
        self, ids_RL: torch.Tensor, mask_RL: torch.Tensor, segments_RL: torch.Tensor | None
    ) -> dict[str, Any]:
        """The arguments of the network's forward pass: tokens, the mask of real ones, and segments
        if the network ``has_segments``.
        """
        inputs: dict[str, Any] = {"input_ids": ids_RL}
        if not self._causal:  # what is on the right never reaches a causal model's tokens
            inputs["attention_mask"] = mask_RL.long()
        if segments_RL is not None:
            inputs["token_type_ids"] = segments_RL
        if self._positions:  # a row for each text: users must be told apart in this layer, too
            inputs["position_ids"] = torch.arange(ids_RL.shape[1]).expand(ids_RL.shape)
        return {name: value.to(self.device) for name, value in inputs.items()} | self._uncached

    def to_config(self) -> dict[str, Any]:
        """JSON-able description from which `language_base` makes an equal one."""
        return self.settings.to_config()

    @cached_property
    def reference_terms(self) -> str:
        """Everything that a likelihood at θ = 0 depends on beside tokens, down to its last
        digit.
        """
        settings = json.dumps(self.settings.of_reference, sort_keys=True)
        said = [settings, self.attention, self.most_logits, self.words]
        return repr([*said, *last_digits(self.device, torch.get_num_threads())])

    def write(self, folder: Path, theta_D: np.ndarray) -> None:
        """Save the model and its tokenizer at θ, for `from_pretrained`.

        With LoRA that is the adapter; on a base that an adapter was merged into, the whole model.
        """
        with self.unrounded():
            self.put(theta_D)
            self.save(folder)

    @contextmanager
    def unrounded(self) -> Iterator[None]:
        """Convert all parameters that can be saved to float32 inside, so that nothing put or copied
        is rounded.
        """
        if self._dtype == torch.float32:
            yield
            return
        adapter = self.settings.train == "lora" and not self.settings.merged
        changed = self.trained if adapter else [*self.model.parameters()]
        types = [parameter.dtype for parameter in changed]
        try:
            for parameter in changed:
                parameter.data = parameter.data.float()
            yield
        finally:
            for parameter, dtype in zip(changed, types, strict=True):
                parameter.data = parameter.data.to(dtype)

    def save(self, folder: Path) -> None:
        """Save the network as `write` does.

        Raises:
            OSError: it cannot be written.
        """
        network: Any = self.model
        try:
            if self.settings.merged and self.settings.train == "lora":
                state = merged_state(network)
                network.get_base_model().save_pretrained(folder, state_dict=state)
            else:
                network.save_pretrained(folder)
            name_base(folder, name_for(self.settings.path, folder))
            self.tokenizer.save_pretrained(folder)
        except Exception as error:
            # safetensors and tokenizers say it in an error of their own, with the system's number.
            if isinstance(error, OSError) or not (result := _OS_ERROR.search(str(error))):
                raise
            number = int(result[1])
            raise OSError(number, os.strerror(number), str(folder)) from None


def language_base(config: Mapping[str, Any], weights: bool = True) -> LanguageBase:
    """The base that a config describes; a process keeps the last two, while their files stay.

    Those that differ in the size of batches alone are one network. Without ``weights`` as
    `LanguageBase` has it.

    Raises:
        InputError: as `LanguageBase`, or another model is here than the one described.
    """
    arguments = {name: value for name, value in config.items() if name != "kind"}
    settings = resolved(BaseSettings(**arguments))
    if not weights:
        return LanguageBase(settings, weights=False)
    kept = _kept(replace(settings, batch_tokens=0), usual_device())
    return kept.in_batches(settings.batch_tokens)


@lru_cache(maxsize=2)
def _kept(settings: BaseSettings, device: torch.device) -> LanguageBase:
    del device  # as usual
    return LanguageBase(settings)


#: Where ``LanguageBase.head_states`` waits for what a head is given.
_head_reads: ContextVar[list[torch.Tensor] | None] = ContextVar("head_reads", default=None)


def _keep_states(_: object, args: tuple[torch.Tensor, ...]) -> None:
    if (states := _head_reads.get()) is not None:
        states.append(args[0])


def context(settings: BaseSettings, model: Any) -> int:
    """The most tokens of one text: as asked for, and as the model has positions."""
    positions = getattr(model.config, "max_position_embeddings", None) or settings.max_tokens
    return min(settings.max_tokens, positions - _before_first(model))


def _before_first(model: torch.nn.Module) -> int:
    """The position of the first token. Models with a position for padding, such as RoBERTa, start
    after it; the network does so by itself for each text.
    """
    for name, module in model.named_modules():
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            return padding + 1
    return 0


def _unit_of(parameter: torch.Tensor) -> float:
    """The unit of θ's numbers for a parameter: a power of two, so that no digit changes.

    About the size of its numbers where they begin, so that noise is a share of them; of one that
    begins at zero (a new head, LoRA's second factor), about the size that would keep the length of
    what comes in, 1/√(inputs). The same on every machine.

    Raises:
        InputError: its numbers are not finite.
    """
    begin = parameter.detach().double()
    size = float(begin.square().mean().sqrt())
    if not math.isfinite(size):
        raise InputError("--base: weights that are to be trained are not finite")
    if not size:
        size = 1.0 / math.sqrt(parameter.shape[-1]) if parameter.ndim > 1 else 1.0
    # The lower of two powers where it lies halfway, as 1/√2048 does: to the last digit of a
    # logarithm, which is not the same in every C library.
    return 2.0 ** math.ceil(round(math.log2(size), 6) - 0.5)


def _takes(model: torch.nn.Module, argument: str) -> bool:
    inner = getattr(model, "base_model", model)
    network = getattr(inner, "model", model) if hasattr(model, "peft_config") else model
    return argument in inspect.signature(network.forward).parameters
