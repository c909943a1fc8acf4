"""A language model whose head alone is trained: its states are features, computed once.

The reward is linear in the head, so this is the linear head of `preference.reward` over the vector
that the model's own head reads, and takes no backward pass. States are scaled by 1/√D, which makes
them about unit length behind a layer norm; the scale goes into the head's weights when the model is
saved, so that it is an ordinary reward model. The head begins at zero.

Needs the extra `murmuration-rlhf[lm]`.

Legend: R texts, L tokens, D dimensions.
"""

import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from murmuration.preference.data.errors import InputError
from murmuration.preference.features.frozen_states import FrozenStates
from murmuration.preference.language.base.network import STATES_KNOWN_BY, LanguageBase
from murmuration.preference.language.base.settings import BaseSettings

KIND = "language-head"


class LanguageHead:
    """Features of a language model's last states; a `preference.features.hashing.FeatureMap`.

    Attributes:
        base: the model; nothing in it is trained.

    Raises:
        InputError: the model cannot be loaded.
    """

    uses_prompt = True

    def __init__(self, **settings) -> None:
        self.base = LanguageBase(BaseSettings(**{**settings, "train": "head"}))
        head = self.base.model.get_submodule(self.base.head)
        assert isinstance(head, torch.nn.Linear)  # or it would not have been found
        self._head = head
        self.dimension: int = head.in_features

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """Features of R texts: (R, D) float32."""
        written = self.base.written(self.base.texts(prompts, responses), np.arange(len(responses)))
        with self.base.computing():
            return self._frozen.pooled(written) / np.float32(math.sqrt(self.dimension))

    def fits(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """True for each text that the model can read, (R,) bool."""
        return self.base.texts.fits(prompts, responses)

    def unreadable(self, prompts: Sequence[str], responses: Sequence[str]) -> list[str]:
        """The reason why the model cannot read each text; "" if it can."""
        return self.base.texts.unreadable(prompts, responses)

    @cached_property
    def _frozen(self) -> FrozenStates:
        base = self.base
        network: Any = base.model
        known = {k: v for k, v in base.settings.described.items() if k in STATES_KNOWN_BY}
        return FrozenStates(
            self._states,
            lambda states_LD: states_LD[-1],
            device=base.device,
            width=self.dimension,
            words=len(network.get_input_embeddings().get_parameter("weight")),
            limit=base.texts.limit,
            terms=[KIND, json.dumps(known, sort_keys=True), base.attention],
        )

    def _states(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The state that the head reads of each of B texts of L tokens, (B, 1, D)."""
        ids_BL = inputs["input_ids"]
        segments_BL = inputs.get("token_type_ids")
        states_BLD = self.base.head_states(
            self.base.inputs_of(ids_BL, torch.ones_like(ids_BL), segments_BL)
        )
        if states_BLD.shape[1] == 1:
            return states_BLD
        # As transformers has it: the last token that has not the number of padding.
        place_L = torch.arange(ids_BL.shape[1], device=ids_BL.device)
        last_B = (place_L * (ids_BL != self.base.tokenizer.pad_token_id)).argmax(1)
        return states_BLD[torch.arange(len(ids_BL), device=ids_BL.device), last_B][:, None]

    def to_config(self) -> dict:
        """Description for `preference.features.hashing.feature_map`."""
        settings = self.base.settings.described
        return {"kind": KIND, **{k: v for k, v in settings.items() if k in _SHAPING}}

    def write(self, folder: Path, theta_D: np.ndarray) -> None:
        """Save the model with this head, and its tokenizer, for `from_pretrained`."""
        if theta_D.shape != (self.dimension,):
            raise InputError(f"a head of {theta_D.shape} for {self.dimension} dimensions")
        with torch.no_grad(), self.base.unrounded():
            weights = torch.from_numpy(theta_D) / math.sqrt(self.dimension)
            self._head.weight.copy_(weights[None])
            if self._head.bias is not None:
                self._head.bias.zero_()
            self.base.save(folder)


#: Settings that a head has, beside what is found in the base.
SETTINGS = ("path", "max_tokens", "batch_tokens", "dtype", "system")
_SHAPING = (*SETTINGS, "digest", "revision", "merged")
