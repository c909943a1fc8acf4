"""Log-likelihoods of answers, token by token, under a policy with LoRA in its last layers or in
all.

A policy, its reference and the policy that is to be changed read the same answers. What is below
the first layer that LoRA changes is the same of all three: it is computed once. Of the words known
there is a number only where an answer's token is scored, not in its prompt.

Legend: R answers, L tokens of the longest with its opening, K tokens of the longest, H width of
a state, Q scored tokens.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.generation import Sampling, Writer


class AnswerLikelihoods:
    """Log-likelihoods of answers' tokens after their openings, in nats.

    Args:
        base: says the next token; at whatever weights it has when it is called, and differentiable
            where gradients are switched on.
        temperature: what it is sampled at.
    """

    def __init__(self, base: LanguageBase, temperature: float) -> None:
        self._base, self._temperature = base, temperature
        self._lower: dict[bytes, torch.Tensor] = {}

    def forget(self) -> None:
        """Drop the states that were kept of texts."""
        self._lower.clear()

    def written(
        self, openings: Sequence[list[int]], sampling: Sampling, seed: Sequence[int]
    ) -> list[list[int]]:
        """Generate answers, each with its end token if it has one. The states below the first
        trained layer are kept from generation. A pass over the whole text rounds otherwise: for
        SmolLM2 a token's log-likelihood differed by at most 5e-5 nats.

        Args:
            openings: tokens of prompts.
            sampling: of answers.
            seed: of them.
        """
        writer = Writer(self._base.model, self._base.texts, self._base.noting)
        answers = writer.continue_tokens(openings, sampling, seed, ended=True)
        if self._base.lower is not None:
            for opening, answer, known_LH in zip(openings, answers, writer.states, strict=True):
                # Nothing that is scored follows the last token, and none before it looks there.
                state_LH = torch.nn.functional.pad(known_LH, (0, 0, 0, 1))
                self._lower[_name([*opening, *answer])] = state_LH
        return answers

    def __call__(
        self, openings: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
    ) -> torch.Tensor:
        """Log-likelihoods of answers' tokens, (R, K) float32, zero beyond an answer's end.

        Args:
            openings: tokens of prompts.
            answers: to each of them, with the token that ended it, if it ended; none is empty.
        """
        base, pad = self._base, self._base.tokenizer.pad_token_id
        whole = [[*opening, *answer] for opening, answer in zip(openings, answers, strict=True)]
        longest, most = max(map(len, whole)), max(map(len, answers))
        ids_RL = torch.tensor([ids + [pad] * (longest - len(ids)) for ids in whole])
        place_L = torch.arange(longest)
        first_R1 = torch.tensor([[len(opening)] for opening in openings])
        end_R1 = torch.tensor([[len(ids)] for ids in whole])
        mask_RL = place_L < end_R1
        scored_RL = (mask_RL & (place_L >= first_R1))[:, 1:].to(base.device)
        inputs = base.inputs_of(ids_RL, mask_RL, None)
        state_RLH = base.next_states(inputs, self._lower_of(whole, longest))
        said_QV = base.said(state_RLH[:, :-1][scored_RL]).div_(self._temperature)
        next_Q = inputs["input_ids"][:, 1:][scored_RL]
        log_Q = -cross_entropy(said_QV, next_Q, reduction="none")
        place_RK = torch.arange(most) < end_R1 - first_R1
        log_RK = torch.zeros(place_RK.shape, device=base.device)
        return log_RK.masked_scatter(place_RK.to(base.device), log_Q)

    def _lower_of(self, whole: Sequence[Sequence[int]], longest: int) -> torch.Tensor | None:
        """Texts' states below the first trained layer, zero beyond their ends, (R, L, H)."""
        base = self._base
        if base.lower is None:
            return None
        names = [_name(ids) for ids in whole]
        missing = {name: ids for name, ids in zip(names, whole, strict=True)
                   if name not in self._lower}  # fmt: skip
        if missing:
            pad, most = base.tokenizer.pad_token_id, max(map(len, missing.values()))
            ids_RL = torch.tensor([[*ids, *[pad] * (most - len(ids))] for ids in missing.values()])
            state_RLH = base.lower_states(base.inputs_of(ids_RL, torch.ones_like(ids_RL), None))
            for row, (name, ids) in enumerate(missing.items()):
                self._lower[name] = state_RLH[row, : len(ids)].clone()
        first = self._lower[names[0]]
        state_RLH = first.new_zeros(len(names), longest, first.shape[1])
        for row, name in enumerate(names):
            state_RLH[row, : len(self._lower[name])] = self._lower[name]
        return state_RLH


def _name(ids: Sequence[int]) -> bytes:
    return np.array(ids, np.int64).tobytes()
