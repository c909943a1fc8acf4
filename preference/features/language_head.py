"""A language model whose head alone is trained: its last states are features, computed once.

The reward is linear in the head, so this is the linear head of `preference.reward` over the vector
that the model's own head reads, and takes no backward pass. States are scaled by 1/√D, which makes
them about unit length behind a layer norm; the scale goes into the head's weights when the model is
saved, so that it is an ordinary reward model. The head begins at zero.

Needs the extra `murmuration-rlhf[lm]`.

Legend: R texts, L tokens, D dimensions.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from murmuration.preference.data.judgements import InputError
from murmuration.preference.language.base_model import BaseSettings, LanguageBase

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
        tokens = self.base.texts(prompts, responses)
        phi_RD = np.zeros((len(responses), self.dimension), dtype=np.float32)
        for text in range(len(responses)):  # alone: no digit depends on what stands beside
            state_D = self._states(tokens, np.array([text]))[0]
            phi_RD[text] = state_D.float().cpu().numpy() / math.sqrt(self.dimension)
        return phi_RD

    def fits(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """Return which texts the model can read, (R,) bool."""
        return self.base.texts.fits(prompts, responses)

    def _states(self, tokens, texts_R: np.ndarray) -> torch.Tensor:
        """Return what the head reads of each text, (R, D)."""
        seen: list[torch.Tensor] = []
        hook = self._head.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        try:
            with torch.no_grad():
                self.base.rewards(tokens, texts_R)
        finally:
            hook.remove()
        state = seen[0]
        if state.ndim == 2:
            return state
        # Of a causal model the head reads every token, and the last that is no padding counts.
        pad = self.base.tokenizer.pad_token_id
        ids_RL, _ = tokens.batch(texts_R, pad)
        last_R = (torch.arange(ids_RL.shape[1]) * (ids_RL != pad)).argmax(1).to(state.device)
        return state[torch.arange(len(state), device=state.device), last_R]

    def to_config(self) -> dict:
        """Description for `preference.features.hashing.feature_map`."""
        settings = asdict(self.base.settings)
        return {"kind": KIND, **{k: v for k, v in settings.items() if k in _SHAPING}}

    def write(self, folder: Path, theta_D: np.ndarray) -> None:
        """Save the model with this head, and its tokenizer, for `from_pretrained`.

        A base that was quantised is saved as it came.
        """
        if theta_D.shape != (self.dimension,):
            raise InputError(f"a head of {theta_D.shape} for {self.dimension} dimensions")
        if self.base.settings.quantise != "none":  # which nobody could load without bitsandbytes
            plain = LanguageHead(**{**asdict(self.base.settings), "quantise": "none"})
            plain.write(folder, theta_D)
            return
        with torch.no_grad(), self.base.unrounded():
            weights = torch.from_numpy(theta_D) / math.sqrt(self.dimension)
            self._head.weight.copy_(weights[None])
            if self._head.bias is not None:
                self._head.bias.zero_()
            self.base.save(folder)


_SHAPING = (
    *("path", "max_tokens", "batch_tokens", "dtype", "quantise", "tf32"),
    *("digest", "revision", "merged"),
)
