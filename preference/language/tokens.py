"""Prompt and response as the tokens that a language model reads.

A model with a chat template reads the exchange as its template writes it; an encoder reads a pair
of texts between its special tokens; any other reads the prompt, an empty line and the response. No
end of text is added: models learn to forget at it what stood before, and the reward is read off the
last token. Only where next tokens are learnt is an end written, and learnt. Where it all is longer
than the context, tokens are cut from the front of the prompt. A response is never cut: one that
does not fit is an error, because a judgement about a text that the model did not see would teach it
something else. A text by itself is cut into windows.

Legend: T texts (a prompt with a response), R of them in a batch, L tokens of the longest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from murmuration.preference.data.judgements import InputError

_BETWEEN = "\n\n"  # prompt and response, where no template says


def length_batches(lengths_T: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Places of texts of about equal length, of at most ``most`` tokens together, padding included,
    or a single one; each text once, the shortest first.
    """
    order_T = np.argsort(lengths_T, kind="stable")
    at = 0
    while at < len(order_T):
        tokens = lengths_T[order_T[at:]] * np.arange(1, len(order_T) - at + 1)
        end = at + max(1, int((tokens <= most).sum()))  # ascending, as lengths are
        yield order_T[at:end]
        at = end


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokens of T texts.

    Attributes:
        ids: int64, all texts' tokens one after the other.
        start_T: T + 1 offsets into ``ids``.
        second_T: where in a text the response begins: an encoder's second segment, and what is
            scored where next tokens are said.
        cut: how many prompts were cut.
    """

    ids: torch.Tensor
    start_T: np.ndarray
    second_T: np.ndarray
    cut: int

    @property
    def lengths_T(self) -> np.ndarray:
        """Tokens of each text."""
        return np.diff(self.start_T)

    def batch(self, texts_R: np.ndarray, pad: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens of some texts, (R, L), filled up with ``pad`` on the right; and which are real."""
        first_R, lengths_R = self.start_T[texts_R], self.lengths_T[texts_R]
        place_L = np.arange(int(lengths_R.max()))
        there_RL = place_L < lengths_R[:, None]
        at_RL = np.where(there_RL, first_R[:, None] + place_L, 0)
        mask_RL = torch.from_numpy(there_RL)
        ids_RL = torch.where(mask_RL, self.ids[torch.from_numpy(at_RL)], pad)
        return ids_RL, mask_RL

    def segments(self, texts_R: np.ndarray, length: int) -> torch.Tensor:
        """Which of an encoder's two segments each token belongs to, (R, L): 0 or 1."""
        second = torch.from_numpy(self.second_T[texts_R])[:, None]
        return (torch.arange(length) >= second).long()


class TextTokens:
    """Turns texts into tokens for one tokenizer.

    Attributes:
        pairs: whether the tokenizer writes pairs of texts between special tokens of its own.
        limit: the most tokens of one text.
    """

    def __init__(self, tokenizer, limit: int) -> None:
        self.tokenizer, self.limit = tokenizer, limit
        self.pairs = tokenizer.cls_token_id is not None and tokenizer.sep_token_id is not None
        self.chat = bool(getattr(tokenizer, "chat_template", None)) and not self.pairs
        self._before, self._between, self._after = self._special()

    def __call__(
        self,
        prompts: Sequence[str],
        responses: Sequence[str],
        rows: Sequence[int] | None = None,
        *,
        ended: bool = False,
    ) -> Tokens:
        """Tokens of T texts; ``rows`` says in which row each stands, if not in its own.

        ``ended``: with an end of text, where the tokenizer has one and no template writes its own.

        Raises:
            InputError: a response does not fit into the context.
        """
        heads, tails = (self._exchanges if self.chat else self._plain)(prompts, responses)
        after, most = self._last(ended), self._most(ended)
        found, second_T, cut = [], [], 0
        for text, (head, tail) in enumerate(zip(self._ids(heads), self._ids(tails), strict=True)):
            room = most - len(tail)
            if room < 0:
                row = text if rows is None else rows[text]
                raise InputError(
                    f"row {row + 1}: a response of {len(tail)} tokens does not fit into the "
                    f"{most} that are read of a text; shorten it, raise "
                    "--max-tokens, or choose a --base with a longer context"
                )
            cut += len(head) > room
            kept = head[len(head) - room :] if len(head) > room else head
            found.append([*self._before, *kept, *self._between, *tail, *after])
            second_T.append(len(self._before) + len(kept) + len(self._between))
        return _joined(found, second_T, cut)

    def fits(
        self, prompts: Sequence[str], responses: Sequence[str], *, ended: bool = False
    ) -> np.ndarray:
        """Which responses fit into the context, (T,) bool."""
        _, tails = (self._exchanges if self.chat else self._plain)(prompts, responses)
        most = self._most(ended)
        return np.array([len(tail) <= most for tail in self._ids(tails)], dtype=bool)

    def _last(self, ended: bool) -> list[int]:
        """What is written after a response."""
        return self._after + (self._end(self._after) if ended and not self.chat else [])

    def _most(self, ended: bool) -> int:
        """Tokens of a response that can be read."""
        special = len(self._before) + len(self._between) + len(self._last(ended))
        return self.limit - special

    def windows(self, texts: Sequence[str]) -> tuple[Tokens, np.ndarray]:
        """Tokens of texts by themselves, with their end, and how many windows each was cut into.

        Windows of at most ``limit`` tokens; each but a text's first begins with the last token of
        the one before, which is scored there. A text of a single token has no window.
        """
        if self.limit < 2:
            raise InputError("--max-tokens must be at least 2 for a token to follow on another")
        written = self.tokenizer(list(texts), verbose=False)["input_ids"] if texts else []
        found: list[list[int]] = []
        windows_R = np.zeros(len(written), dtype=np.int64)
        for row, ids in enumerate(written):
            ids = [*ids, *self._end(ids)]
            parts = [ids[at : at + self.limit] for at in range(0, len(ids) - 1, self.limit - 1)]
            windows_R[row] = len(parts)
            found += parts
        return _joined(found, [1] * len(found), 0), windows_R

    def _end(self, written: Sequence[int]) -> list[int]:
        """The end of text, unless there is none or it is written already."""
        end = self.tokenizer.eos_token_id
        return [] if end is None or [*written[-1:]] == [end] else [end]

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        return self.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]

    def _plain(
        self, prompts: Sequence[str], responses: Sequence[str]
    ) -> tuple[Sequence[str], Sequence[str]]:
        if self.pairs:
            return prompts, responses
        return [prompt + _BETWEEN for prompt in prompts], responses

    def _exchanges(
        self, prompts: Sequence[str], responses: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """What the chat template writes, up to where the response begins and from there on."""
        heads, tails = [], []
        for prompt, response in zip(prompts, responses, strict=True):
            user = {"role": "user", "content": prompt}
            answer = {"role": "assistant", "content": response}
            write = self.tokenizer.apply_chat_template
            head = write([user], tokenize=False, add_generation_prompt=True)
            whole = write([user, answer], tokenize=False)
            # Some templates begin an answer otherwise than they invite one: what both share.
            same = next((i for i, (a, b) in enumerate(zip(head, whole, strict=False)) if a != b), 0)
            at = len(head) if whole.startswith(head) else same
            heads.append(whole[:at])
            tails.append(whole[at:])
        return heads, tails

    def _special(self) -> tuple[list[int], list[int], list[int]]:
        """Special tokens before, between and after prompt and response."""
        if self.chat:
            return [], [], []
        (first,), (second,) = self._ids(["a"]), self._ids(["b"])
        if not first or not second:
            raise InputError("--base: its tokenizer makes nothing of a text; is it complete?")
        if self.pairs:
            whole = list(self.tokenizer("a", "b")["input_ids"])
            before, rest = _around(whole, first)
            between, after = _around(rest, second)
            return before, between, after
        before, after = _around(list(self.tokenizer("a")["input_ids"]), first)
        return before, [], after


def _joined(found: Sequence[Sequence[int]], second_T: Sequence[int], cut: int) -> Tokens:
    start_T = np.cumsum([0, *map(len, found)], dtype=np.int64)
    ids = np.fromiter((i for text in found for i in text), np.int64, int(start_T[-1]))
    return Tokens(torch.from_numpy(ids), start_T, np.array(second_T, np.int64), cut)


def _around(whole: list[int], part: list[int]) -> tuple[list[int], list[int]]:
    """What stands before and after a part."""
    for at in range(len(whole)):
        if whole[at : at + len(part)] == part:
            return whole[:at], whole[at + len(part) :]
    raise InputError("--base: the tokenizer does not keep texts apart from its special tokens")
