"""Texts as tokens, and the next-token loss of a causal language model.

- `text`: an example is a text of a user's own. One longer than the context is cut into windows, as
  language models are trained; each window begins with the last token of the one before, so that
  every token but the text's first is said exactly once, and each window is an example by itself.
- `sft`: an example is a judgement: all its responses, each given the prompt, whose tokens are not
  scored. Which of them was preferred is not looked at: they are put in the order of their letters
  before anything is made of them, so that other labels give the same bits.

The loss of a text is the mean cross-entropy of its scored tokens, that of an example the mean over
its texts. An end of text, if the tokenizer has one and no template writes its own, is appended and
scored: where to stop is learnt, too.

Of each scored token there is a number for every word known, far more than anything else. So states
are computed once, and what is said by them in chunks of tokens, each of which goes back to its
states before the next is computed: gradients are those of the whole except for the order of sums,
and of these numbers there are never more than the base's ``most_logits`` (and their gradients).

Legend: J examples, K texts of an example at most, N sampled examples, T distinct texts, M those of
these examples, R texts in a batch, L tokens of the longest, Q scored tokens in a batch, H width of
states, V words known, U users, D trained parameters.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from murmuration.preference.accuracy import Accuracy, float32_of
from murmuration.preference.data.judgements import Judgements, LeftOut
from murmuration.preference.data.texts import UserTexts
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.examples.language_examples import LanguageExamples
from murmuration.preference.language.tokens import Tokens
from murmuration.preference.linear.examples import distinct_texts
from murmuration.preference.models import PreferenceModel


@dataclass(frozen=True, eq=False)
class NextTokens(LanguageExamples):
    """Tokens of texts whose next tokens are said; from `second_T` on they are scored."""

    measures_loss = True  # that of the next token

    @property
    def width(self) -> int:
        """One, as for pairs."""
        return 1

    def differentiate(
        self, texts_R: np.ndarray, taken_N: np.ndarray, weight_N: np.ndarray, model: PreferenceModel
    ) -> None:
        """Differentiate through the cross-entropy of scored tokens."""
        del model
        shown_N = (self.text_JK[taken_N] >= 0).sum(1)
        weight_R = np.repeat(weight_N / shown_N, shown_N) / scored_tokens(self.tokens, texts_R)
        differentiate_texts(self.base, self.tokens, texts_R, weight_R)

    def accuracy(self, theta_D: np.ndarray | torch.Tensor) -> Accuracy:
        """Measure how often the likeliest next token at θ is the right one, and the loss.

        ``judgements`` counts scored tokens; ``chance`` is one over the words known. A text in
        several examples counts in each.
        """
        self.base.put(float32_of(theta_D))
        text_M, place_JK = self.shown()
        right_M, loss_M = np.zeros((2, len(text_M) + 1))  # the last: of no text
        with torch.no_grad():
            for some_R in self.measured(text_M):
                at_R = np.searchsorted(text_M, some_R)
                loss_M[at_R], right_M[at_R] = self._losses(some_R)
        scored_M = np.append(scored_tokens(self.tokens, text_M), 0)
        right_J, loss_J, scored_J = (a[place_JK].sum(1) for a in (right_M, loss_M, scored_M))
        user_J = np.repeat(np.arange(len(self.counts_U)), self.counts_U.numpy())
        right_U, scored_U = (
            np.bincount(user_J, w, len(self.counts_U)) for w in (right_J, scored_J)
        )
        loss = float(loss_J.sum()) / max(1, int(scored_J.sum()))
        return Accuracy.of_users(right_U, scored_U, 1.0 / self.base.words, loss)

    def _losses(self, texts_R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Texts' cross-entropies, summed over tokens, and the numbers of tokens that were the
        likeliest.
        """
        state_QH, next_Q, text_Q = scored_states(self.base, self.tokens, texts_R)
        row_Q, loss_R, right_R = text_Q.cpu().numpy(), *np.zeros((2, len(texts_R)))
        for part in chunks(self.base, len(next_Q)):
            said_QV = self.base.said(state_QH[part])
            loss_P = cross_entropy(said_QV, next_Q[part], reduction="none").double()
            right_P = said_QV.argmax(1) == next_Q[part]
            loss_R += np.bincount(row_Q[part], loss_P.cpu().numpy(), len(texts_R))
            right_R += np.bincount(row_Q[part], right_P.cpu().numpy(), len(texts_R))
        return loss_R, right_R


def differentiate_texts(
    base: LanguageBase, tokens: Tokens, texts_R: np.ndarray, weight_R: np.ndarray
) -> torch.Tensor:
    """Add to gradients those of the cross-entropy of texts' scored tokens, at the θ that was put.

    Args:
        base: says the next token.
        tokens: of all texts.
        texts_R: which of them.
        weight_R: what each of a text's tokens counts.

    Returns:
        The loss: all tokens' cross-entropies in nats, so weighted, added up.
    """
    state_QH, next_Q, text_Q = scored_states(base, tokens, texts_R)
    weight_Q = torch.from_numpy(weight_R).float().to(state_QH.device)[text_Q]
    back_QH, total = torch.empty_like(state_QH), weight_Q.new_zeros(())
    for part in chunks(base, len(next_Q)):
        leaf_QH = state_QH[part].detach().requires_grad_(True)
        with base.backward.by_token(text_Q[part].tolist()):
            loss_Q = cross_entropy(base.said(leaf_QH), next_Q[part], reduction="none")
            loss = (loss_Q * weight_Q[part]).sum()
            (loss * base.scale).backward()
        assert leaf_QH.grad is not None  # it is what the loss was made of
        back_QH[part] = leaf_QH.grad
        total += loss.detach()
    if state_QH.requires_grad:  # or only the head is trained
        state_QH.backward(back_QH)
    return total


def scored_tokens(tokens: Tokens, texts_R: np.ndarray) -> np.ndarray:
    """Count the scored tokens of some texts, (R,)."""
    lengths_R = tokens.start_T[texts_R + 1] - tokens.start_T[texts_R]
    return lengths_R - np.maximum(tokens.second_T[texts_R], 1)


def scored_states(
    base: LanguageBase, tokens: Tokens, texts_R: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For each scored token: the state that predicts it, at the θ that was put last, (Q, H), its
    id, and the index of its text, (Q,) each.
    """
    state_RLH, ids_RL = base.states(tokens, texts_R)
    place_L = np.arange(ids_RL.shape[1])
    begin_R = np.maximum(tokens.second_T[texts_R], 1)[:, None]
    scored_RL = (place_L >= begin_R) & (place_L < tokens.lengths_T[texts_R][:, None])
    there_RL = torch.from_numpy(scored_RL[:, 1:]).to(ids_RL.device)
    return state_RLH[:, :-1][there_RL], ids_RL[:, 1:][there_RL], there_RL.nonzero()[:, 0]


def chunks(base: LanguageBase, scored: int) -> Iterator[slice]:
    """Slices of scored tokens, each with at most the allowed number of logits."""
    most = max(1, base.most_logits // base.words)
    return (slice(low, low + most) for low in range(0, scored, most))


def own_texts(data: UserTexts, base: LanguageBase, left_out: LeftOut | None = None) -> NextTokens:
    """The tokens of users' own texts, in windows.

    A text that has no token that could be said has no window either; ``left_out`` takes it.

    Raises:
        InputError: there is such a text (names the row), and nothing to take it.
    """
    tokens, windows_R = base.texts.windows(data.texts)
    taken = left_out or LeftOut("refuse")
    taken.add_all(windows_R > 0, "a text of a single token, which follows on none; leave it out")
    start_R = np.concatenate([[0], np.cumsum(windows_R)])
    return NextTokens(
        base=base,
        tokens=tokens,
        text_JK=np.arange(len(tokens.lengths_T))[:, None],
        start_U=torch.from_numpy(start_R[data.start_U]),
    )


def responses(
    judgements: Judgements, base: LanguageBase, left_out: LeftOut | None = None
) -> NextTokens:
    """The tokens of the responses in judgements, given the prompts.

    With ``left_out``, which takes them, judgements with a response that does not fit are left out.

    Raises:
        InputError: a response does not fit into the model's context (names the row), and there is
            nothing to take it.
    """
    shown_J = [sorted(shown) for shown in judgements.responses]
    text_JK, prompts, texts, first_row_T = distinct_texts(judgements, True, shown_J)
    if left_out is not None:
        reasons_T = [*base.texts.unreadable(prompts, texts, ended=True), ""]  # the last: no text
        if any(reasons_T):
            kept_J = left_out.rows_of_texts(reasons_T, text_JK)
            return responses(judgements.keep(kept_J), base)
    return NextTokens(
        base=base,
        tokens=base.texts(prompts, texts, first_row_T, ended=True),
        text_JK=text_JK,
        start_U=torch.tensor(judgements.start_U, dtype=torch.int64),
    )
