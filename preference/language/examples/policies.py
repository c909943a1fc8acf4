"""Judgements as tokens, and the loss of a policy on them: a language model that says responses.

A response's log-ratio is its log-likelihood, after its prompt and with its end, less that under the
reference, which is the checkpoint that is trained. What log-ratios of a judgement cost is in
`preference.policy_losses`; here they are computed, and differentiated.

There is no second model: the reference is the same network at θ = 0, put there before the round's θ
is. Each text's likelihood under it is computed by itself, so that it depends on nothing but the
text and public constants, and is kept: where a judgement comes again, in a later round, the
reference costs nothing, nor in a later run where `reference_cache` has a folder. (With
`shared_passes` texts share batches there, too.) Responses of one judgement do not share a batch
either: a text can stand in those of several users, each with other responses, and has one
likelihood.

All responses of a judgement go through the network in one pass forward and one back.

Legend: J judgements, N sampled ones, K responses of each at most, T distinct texts, M those of
these examples, R texts in a batch, Q scored tokens in a batch, H width of states, S sampled users.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from murmuration.preference.accuracy import Accuracy, accuracy_by, float32_of
from murmuration.preference.data.judgements import Judgements, LeftOut
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.examples.judgements import TokenExamples, token_examples
from murmuration.preference.language.examples.next_tokens import (
    chunks,
    scored_states,
    scored_tokens,
)
from murmuration.preference.language.generation import Sampling, Writer
from murmuration.preference.language.reference_cache import References, references
from murmuration.preference.models import PreferenceModel
from murmuration.preference.policy_losses import PolicyLoss

_WRITTEN = 64  # responses of a policy, to see how long they are


@dataclass(frozen=True, eq=False)
class PolicyExamples(TokenExamples):
    """Examples of a policy.

    Attributes:
        reference_T: float64, log-likelihood of each text under the reference, as far as it is known
            by now, else NaN; the last, of no text, is 0.
        kept: the cache of reference likelihoods; none by default.
    """

    reference_T: np.ndarray = field(kw_only=True)
    kept: References = field(default_factory=References, kw_only=True)

    @cached_property
    def loss(self) -> PolicyLoss:
        """The loss that it is trained by."""
        return policy_loss(self.base)

    def scored(self, texts_R: np.ndarray, slopes: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """As in the base class; a text's score is its log-likelihood, (R,) float64."""
        state_QH, next_Q, text_Q = scored_states(self.base, self.tokens, texts_R)
        parts = list(chunks(self.base, len(next_Q)))
        leaf_QH = state_QH.detach().requires_grad_(True)
        row_Q = text_Q.cpu().numpy()

        def said(part: slice) -> torch.Tensor:
            with self.base.backward.by_token(row_Q[part].tolist()):
                return cross_entropy(self.base.said(leaf_QH[part]), next_Q[part], reduction="none")

        # Slopes need the whole of a text. Where it is said in several parts, each is said once
        # more to be differentiated, so that there are never more numbers than of one.
        whole = [said(parts[0])] if len(parts) == 1 else None
        with torch.no_grad():
            loss_Q = torch.cat([loss.detach() for loss in whole or map(said, parts)])
        log_R = -np.bincount(row_Q, loss_Q.double().cpu().numpy(), len(texts_R))
        back_Q = torch.from_numpy(slopes(log_R)[row_Q]).float().to(leaf_QH.device)
        for number, part in enumerate(parts):
            loss_P = whole[number] if whole else said(part)
            (loss_P * -back_Q[part]).sum().backward()
        if state_QH.requires_grad:  # or only the head is trained
            state_QH.backward(leaf_QH.grad)
        return log_R

    def slopes(
        self,
        texts_R: np.ndarray,
        score_R: np.ndarray,
        taken_N: np.ndarray,
        weight_N: np.ndarray,
        model: PreferenceModel,
    ) -> np.ndarray:
        """As in the base class, through the log-ratios that losses are made of."""
        there_NK = self.text_JK[taken_N] >= 0
        ratio_NK = torch.zeros(there_NK.shape, dtype=torch.float64)
        per_R = np.ones(len(texts_R))
        if self.loss.objective.per_token:
            per_R = scored_tokens(self.tokens, texts_R)
        ratio_NK[torch.from_numpy(there_NK)] = torch.from_numpy(
            (score_R - self.reference_T[texts_R]) / per_R
        )
        ratio_NK.requires_grad_(True)
        chosen_N = torch.from_numpy(taken_N)
        y_NW = self.y_R.view(-1, self.width)[chosen_N].double()
        flip_N = None if self.flip_J is None else self.flip_J[chosen_N]
        loss_N = self.loss.loss(ratio_NK, y_NW, flip_N, model)
        (loss_N * torch.from_numpy(weight_N)).sum().backward()
        assert ratio_NK.grad is not None  # it is what the loss was made of
        return ratio_NK.grad.numpy()[there_NK] / per_R

    def ratios(self, theta_D: torch.Tensor) -> torch.Tensor:
        """Log-ratios of all judgements' responses at θ, (J, K) float64; 0 where there is none.

        Each text is computed by itself, except in a public test.
        """
        text_M, place_JK = self.shown()
        self.refer(text_M)
        self.base.put(theta_D)
        log_M = np.zeros(len(text_M))
        for some_R in self.measured(text_M):
            log_M[np.searchsorted(text_M, some_R)] = self.log_likelihoods(some_R)
        ratio_M = log_M - self.reference_T[text_M]
        if self.loss.objective.per_token:
            ratio_M /= scored_tokens(self.tokens, text_M)
        return torch.from_numpy(np.append(ratio_M, 0.0)[place_JK])

    def figures(self, theta_D: np.ndarray) -> tuple[Accuracy, dict[str, float]]:
        """The accuracy of a policy, and further metrics:

        - ``saturated``: the share of pairs beyond the clip of its loss, with zero gradient;
        - ``chosen_ratio``, ``rejected_ratio``: how much likelier, in nats, it has
          made responses than its reference does, on average;
        - ``chosen_tokens``, ``written_tokens``: how long chosen responses are, and
          those that it writes to as many as ``_WRITTEN`` of the prompts, broken off at the longest
          chosen.
        """
        theta = torch.from_numpy(float32_of(theta_D))
        ratio_JK = self.ratios(theta)
        there_JW = torch.from_numpy(self.text_JK[:, 1:] >= 0)
        chosen_J, tokens = self.text_JK[:, 0], self.tokens
        length_J = scored_tokens(tokens, chosen_J)
        prompts = np.unique(chosen_J)[:: max(1, len(np.unique(chosen_J)) // _WRITTEN)][:_WRITTEN]
        limit = self.base.texts.limit
        longest = max(1, min(int(length_J.max()), limit // 2))
        openings = []
        for text in prompts.tolist():
            first = int(tokens.start_T[text])
            ids = tokens.ids[first : first + int(tokens.second_T[text])].tolist()
            openings.append(ids[-(limit - longest) :])
        self.base.put(theta)
        with torch.no_grad(), self.base.computing():
            written = Writer(self.base.model, self.base.texts).continue_tokens(
                [ids for ids in openings if ids], Sampling(max_new_tokens=longest)
            )
        logits_R = self.logits_of(ratio_JK)
        return accuracy_by(logits_R, self.y_R, self.start_U, self.kind, self.width), {
            "saturated": float(self.loss.saturated(ratio_JK)[there_JW].double().mean()),
            "chosen_ratio": float(ratio_JK[:, 0].mean()),
            "rejected_ratio": float(ratio_JK[:, 1:][there_JW].mean()),
            "chosen_tokens": float(length_J.mean()),
            "written_tokens": float(np.mean([len(ids) for ids in written] or [0.0])),
        }

    def logits_R(self, theta_D: torch.Tensor) -> torch.Tensor:
        """The `logits_of` its log-ratios at θ."""
        return self.logits_of(self.ratios(theta_D))

    def logits_of(self, ratio_JK: torch.Tensor) -> torch.Tensor:
        """The reward that the policy stands for, of the first response less that of the other, for
        each row, (R,) float32; 0 where there is no such response."""
        logits_JW = self.loss.logits(ratio_JK)
        there_JW = torch.from_numpy(self.text_JK[:, 1:] >= 0)
        return torch.where(there_JW, logits_JW, 0.0).float().reshape(-1)

    def prepare(self, taken_N: np.ndarray, together: bool) -> None:
        """As in the base class, and compute the reference of the examples."""
        super().prepare(taken_N, together)
        self.refer(np.unique(self.text_JK[taken_N]), together)

    def refer(self, texts_R: np.ndarray, together: bool = False) -> None:
        """Have the reference of those texts whose is not known yet; the network may move to it."""
        new_R = texts_R[np.isnan(self.reference_T[texts_R])]
        there = False

        def under_reference(some_R: np.ndarray) -> np.ndarray:
            nonlocal there
            if not there:
                self.base.put(torch.zeros(self.dimension))
                there = True
            return self.log_likelihoods(some_R)

        batches = self.measured(new_R, together)
        for some_R, log_R in self.kept.of(self.tokens, batches, under_reference):
            self.reference_T[some_R] = log_R

    def log_likelihoods(self, texts_R: np.ndarray) -> np.ndarray:
        """Log-likelihoods of responses, at the θ that was put last, (R,) float64."""
        with torch.no_grad():
            state_QH, next_Q, text_Q = scored_states(self.base, self.tokens, texts_R)
            losses = [
                cross_entropy(self.base.said(state_QH[part]), next_Q[part], reduction="none")
                for part in chunks(self.base, len(next_Q))
            ]
        loss_Q = torch.cat([torch.zeros(0, device=state_QH.device), *losses]).double().cpu()
        return -np.bincount(text_Q.cpu().numpy(), loss_Q.numpy(), len(texts_R))


def policy_loss(base: LanguageBase) -> PolicyLoss:
    """The loss of a base with `--task policy`."""
    settings = base.settings
    return PolicyLoss(settings.loss, settings.beta, settings.r_max)


def policy_examples(
    judgements: Judgements, base: LanguageBase, left_out: LeftOut | None = None
) -> PolicyExamples:
    """The tokens of judgements, for a policy; ``left_out`` as of `token_examples`.

    Raises:
        InputError: as of `token_examples`.
    """
    result = token_examples(judgements, base, left_out, ended=True)
    reference_T = np.full(len(result.tokens.lengths_T) + 1, np.nan)
    reference_T[-1] = 0.0
    return PolicyExamples(
        **{known.name: getattr(result, known.name) for known in fields(result)},
        reference_T=reference_T,
        kept=references(base.reference_terms),
    )


def policy_rewards(
    base: LanguageBase, theta_D: np.ndarray, prompts: Sequence[str], responses: Sequence[str]
) -> np.ndarray:
    """The rewards that a policy at θ stands for, of R prompts with R responses, (R,) float64.

    Nothing that was kept of texts is looked up: how soon this answers tells of no text but these.

    Raises:
        InputError: a response does not fit into the model's context.
    """
    some, texts = len(responses), copy(base.texts)
    texts.keep = False
    examples = PolicyExamples(
        base=base,
        tokens=texts(prompts, responses, ended=True),
        text_JK=np.arange(some)[:, None],
        y_R=torch.zeros(0),
        start_U=torch.tensor([0, some]),
        reference_T=np.append(np.full(some, np.nan), 0.0),
        kept=References(),
        public=True,
    )
    ratio_RK = examples.ratios(torch.from_numpy(float32_of(theta_D)))
    return examples.loss.rewards(ratio_RK)[:, 0].numpy()
