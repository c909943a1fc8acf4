"""The KL of a policy from its reference, on the policy's own generations.

Losses of log-ratios look at given responses alone: a policy can order them well and write nothing
that anybody can read, or write what its reference does. So a finished one answers a few questions
of our own, and the next token at each place of what it writes is compared under both. All of it is
made from the released θ and from public constants, and costs no privacy.

Legend: Q tokens that were written, V words, H width of states, T answers.
"""

import numpy as np
import torch

from murmuration.preference.accuracy import float32_of
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.examples.next_tokens import chunks, scored_states
from murmuration.preference.language.generation import NotFiniteError, Sampling, Writer
from murmuration.preference.language.tokens import Tokens

#: Whatever a crowd was asked, none of these decides anything for it.
QUESTIONS = (
    "Should shops be closed on Sundays?",
    "What makes a good neighbour?",
    "Is it better to live in a town or in the country?",
    "How can somebody learn to cook?",
    "Should children have to learn a second language?",
    "What should one see on a first visit to a large city?",
    "Is it right to keep animals in zoos?",
    "How does one write a good letter of thanks?",
)
#: Tokens of an answer.
_LONGEST = 32
#: Nats a token. Beyond the first, answers of SmolLM2's policies could not be read; short of the
#: second, answers of 80 tokens are the reference's with a probability of at least 80 %, by
#: Pinsker's inequality.
FAR, NEAR = 0.2, 0.001


def nats_moved(base: LanguageBase, theta_D: np.ndarray) -> float:
    """The KL of a policy from its reference in nats per token, on its own generations.

    The mean, over the tokens of its answers to `QUESTIONS` at temperature 1, of the
    Kullback–Leibler divergence of the next token under the policy from that under the reference;
    infinite if one is not a number.

    Args:
        base: of a policy; it is moved.
        theta_D: θ of the policy; the reference is at 0.
    """
    longest = max(1, min(_LONGEST, base.texts.limit // 2))
    openings = base.texts.openings(QUESTIONS, longest)
    theta_D = float32_of(theta_D)
    base.put(theta_D)
    try:
        with torch.no_grad(), base.computing():
            answers = Writer(base.model, base.texts).continue_tokens(
                openings, Sampling(max_new_tokens=longest), ended=True
            )
    except NotFiniteError:
        return np.inf
    texts = [[*opening, *answer] for opening, answer in zip(openings, answers, strict=True)]
    tokens = Tokens(
        ids=torch.tensor([token for text in texts for token in text], dtype=torch.int32),
        start_T=np.cumsum([0, *map(len, texts)]),
        second_T=np.array([len(opening) for opening in openings]),
        cut=0,
    )
    policy_QV, reference_QV = (
        _log_chances(base, tokens, theta) for theta in (theta_D, np.zeros_like(theta_D))
    )
    each_Q = (policy_QV.exp() * (policy_QV - reference_QV)).sum(dim=1)
    mean = float(each_Q.double().mean())
    return max(0.0, mean) if np.isfinite(mean) else np.inf  # below by roundings alone


def measured(base: LanguageBase, theta_D: np.ndarray) -> tuple[float, list[str]]:
    """The KL of a policy, infinite where it cannot be computed, and remarks on it.

    Whatever fails here, memory say, costs the run nothing: what it learnt is still to be saved.
    """
    try:
        moved = nats_moved(base, theta_D)
    except Exception as error:
        return np.inf, [f"How far the policy moved could not be measured: {error}"]
    return moved, [words] if (words := remark(moved)) else []


def remark(moved: float) -> str | None:
    """A remark on a policy that moved so far, if one is due."""
    if moved > FAR:
        return (
            f"FAR FROM ITS BASE: where the policy writes by itself it differs by {moved:.3g} nats "
            "a token, and may write nothing that can be read. Read some answers (murmuration "
            "respond), and train with a smaller --learning-rate or a larger --beta."
        )
    if moved < NEAR:
        return (
            f"Hardly different from its base: by {moved:.2g} nats a token where it writes by "
            "itself. A larger --learning-rate, more rounds or more users move it farther."
        )
    return None


def _log_chances(base: LanguageBase, tokens: Tokens, theta_D: np.ndarray) -> torch.Tensor:
    """Return the logarithms of all words' probabilities where an answer goes on, (Q, V)."""
    every_T = np.arange(len(tokens.lengths_T))
    base.put(theta_D)
    base.keep_lower(tokens, every_T)
    with torch.no_grad():
        state_QH, next_Q, _ = scored_states(base, tokens, every_T)
        parts = [base.said(state_QH[part]).log_softmax(1) for part in chunks(base, len(next_Q))]
    return torch.cat(parts)
