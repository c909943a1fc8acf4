"""Prompt and response as the tokens that a language model reads.

A model with a chat template reads the exchange as its template writes it, a prompt of several turns
(`preference.data.conversations`) turn by turn, after a system prompt where one was set and the
prompt has none of its own; an encoder reads a pair of texts between its special tokens; any other
reads the prompt, an empty line and the response. No end of text is added: models learn to forget at
it what stood before, and the reward is read off the last token. Only where next tokens are learnt
is an end written, and learnt. Where it all is longer than the context, tokens are cut from the
front of the prompt. A response is never cut: one that does not fit, or of which a chat template
drops a part, is an error, because a judgement about a text that the model did not see would teach
it something else. A text by itself is cut into windows.

Users' text is never control: a text with a chat template's marks of turns is an error, too; where
there is no template, special tokens are read as the characters that they are spelled with. A
template reads nothing but the messages: its clock stands still, and its dice begin anew with each
exchange (`confined.tokenizer_child`).

Legend: T texts (a prompt with a response), R of them in a batch, L tokens of the longest.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from murmuration.preference.data.conversations import asked_turns, system_turn
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.files.progress import counted_aloud
from murmuration.preference.features.mapped_rows import as_tensor, joined
from murmuration.preference.language.confined.tokenizer import (
    control_tokens,
    parts,
    serialized,
    written,
)
from murmuration.preference.language.row_cache import RowCache, key_of, named_folder

_BETWEEN = "\n\n"  # prompt and response, where no template says
_AT_A_TIME = 4096  # texts that are looked up, and those that are missing computed
_FORMAT = "murmuration tokens 3"
#: What templates write between turns that is no special token: [INST], <<SYS>>, <|user|> and such.
_MARK = re.compile(r"\[/?[A-Z][A-Z_]+\]|<</?[A-Z]+>>|<\|[^\s|>]+\|>|</?[a-z]+(?:_[a-z]+)+>")


@contextmanager
def unbroken() -> Iterator[None]:
    """InputError where a tokenizer breaks off at a text.

    That of a library in Rust is no ``Exception``: a pattern that goes back and forth too often, for
    one. What it says may quote the text.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise InputError("the model's tokenizer breaks off at a text") from None


def length_batches(lengths_T: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """Places of texts of about equal length, of at most ``most`` tokens together, padding included,
    or a single one; each text once, the shortest first.
    """
    order_T = np.argsort(lengths_T, kind="stable")
    at = 0
    while at < len(order_T):
        ahead = order_T[at : at + max(1, most)]  # a text has a token at least
        tokens = lengths_T[ahead] * np.arange(1, len(ahead) + 1)
        end = at + max(1, int((tokens <= most).sum()))  # ascending, as lengths are
        yield order_T[at:end]
        at = end


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokens of T texts.

    Attributes:
        ids: int32, all texts' tokens one after the other; in memory, or in a file that is mapped.
        start_T: T + 1 offsets into ``ids``.
        second_T: the index in a text where the response begins: an encoder's second segment, and
            the scored tokens of a causal language model.
        cut: the number of prompts that were cut.
    """

    ids: torch.Tensor
    start_T: np.ndarray
    second_T: np.ndarray
    cut: int

    @cached_property
    def lengths_T(self) -> np.ndarray:
        """Tokens of each text, (T,) int32."""
        return np.diff(self.start_T).astype(np.int32)

    def batch(self, texts_R: np.ndarray, pad: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens of some texts, (R, L), filled up with ``pad`` on the right; and which are real."""
        first_R = self.start_T[texts_R]
        lengths_R = self.start_T[texts_R + 1] - first_R
        place_L = np.arange(int(lengths_R.max()))
        there_RL = place_L < lengths_R[:, None]
        at_RL = np.where(there_RL, first_R[:, None] + place_L, 0)
        mask_RL = torch.from_numpy(there_RL)
        ids_RL = torch.where(mask_RL, self.ids[torch.from_numpy(at_RL)].long(), pad)
        return ids_RL, mask_RL

    def segments(self, texts_R: np.ndarray, length: int) -> torch.Tensor:
        """The segment of an encoder that each token belongs to, (R, L): 0 or 1."""
        second = torch.from_numpy(self.second_T[texts_R])[:, None]
        return (torch.arange(length) >= second).long()


class TextTokens:
    """Turns texts into tokens for one tokenizer.

    Attributes:
        pairs: whether the tokenizer writes pairs of texts between special tokens of its own.
        limit: the most tokens of one text.
        system: the system prompt of prompts that have none; empty: as the template does by itself.
        keep: whether texts' tokens are looked up and kept, where a folder for that is named; a
            saved model's are not (`preference.features.frozen_states`).

    Raises:
        InputError: no chat template writes the system prompt, or it fills the context.
    """

    def __init__(self, tokenizer, limit: int, system: str = "", *, keep: bool = True) -> None:
        self.tokenizer, self.limit, self.system, self.keep = tokenizer, limit, system, keep
        self.pairs = tokenizer.cls_token_id is not None and tokenizer.sep_token_id is not None
        self.chat = bool(getattr(tokenizer, "chat_template", None)) and not self.pairs
        self._saved = serialized(tokenizer)
        marks = _MARK.findall(str(tokenizer.chat_template)) if self.chat else ()
        self._control = tuple({*marks, *control_tokens(tokenizer)}) if self.chat else ()
        self._before, self._between, self._after = self._special()
        if system:
            self._check_system()

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
        for text, reason in enumerate(self._misread(prompts, responses, tails)):
            if reason:
                raise InputError(f"row {(text if rows is None else rows[text]) + 1}: {reason}")
        after, most = self._last(ended), self._most(ended)
        second_T, cut_T = np.zeros(len(heads), np.int64), np.zeros(len(heads), bool)
        around = (self._before, self._between, after, self.limit, self.chat, self._saved)
        around += (self.system,) if self.system else ()
        key = key_of(_FORMAT, [repr(around)])
        folder = named_folder() if self._saved and self.keep else None
        cache = RowCache(folder, key, "tokens")

        def computed(places: Sequence[int]) -> Iterator[list[int]]:
            """Yield for each text: whether its prompt was cut, where the response begins, and the
            tokens.
            """
            head_ids, tail_ids = (self._ids([side[t] for t in places]) for side in (heads, tails))
            for text, head, tail in zip(places, head_ids, tail_ids, strict=True):
                room = most - len(tail)
                if room < 0:
                    row = text if rows is None else rows[text]
                    raise InputError(f"row {row + 1}: {_too_long(len(tail), most)}")
                is_cut = len(head) > room
                seen = head[len(head) - room :] if is_cut else head
                second = len(self._before) + len(seen) + len(self._between)
                ids = [*self._before, *seen, *self._between, *tail, *after]
                yield [is_cut, second, *ids]

        def rows_of_texts() -> Iterator[list[int]]:
            for at in range(0, len(heads), _AT_A_TIME):
                places = range(at, min(at + _AT_A_TIME, len(heads)))
                names = [
                    bytes.fromhex(key_of("", [heads[t], tails[t]])) if cache.is_kept else b""
                    for t in places
                ]
                known = cache.find(names)
                missing = [t for t, name in zip(places, names, strict=True) if name not in known]
                new = dict(zip(missing, computed(missing), strict=True))
                if cache.is_kept:
                    cache.add({names[t - at]: np.array(new[t], "<i4").tobytes() for t in new})
                cache.write()
                for t, name in zip(places, names, strict=True):
                    row = new[t] if t in new else np.frombuffer(known[name], "<i4").tolist()
                    cut_T[t], second_T[t] = row[:2]
                    yield row[2:]

        ids, start_T = _joined(counted_aloud(rows_of_texts(), "tokenizing texts", len(heads)))
        return Tokens(ids, start_T, second_T, int(cut_T.sum()))

    def whole(self, prompts: Sequence[str], responses: Sequence[str]) -> list[str]:
        """Each prompt with its response, as they are written for the model."""
        parts = (self._exchanges if self.chat else self._plain)(prompts, responses)
        return [head + tail for head, tail in zip(*parts, strict=True)]

    def fits(
        self, prompts: Sequence[str], responses: Sequence[str], *, ended: bool = False
    ) -> np.ndarray:
        """True for each text that can be read, (T,) bool."""
        reasons_T = self.unreadable(prompts, responses, ended=ended)
        return np.array([not reason for reason in reasons_T], dtype=bool)

    def unreadable(
        self, prompts: Sequence[str], responses: Sequence[str], *, ended: bool = False
    ) -> list[str]:
        """The reason why each of T texts cannot be read; "" if it can."""
        _, tails = (self._exchanges if self.chat else self._plain)(prompts, responses)
        most, reasons_T = self._most(ended), self._misread(prompts, responses, tails)
        for text, ids in enumerate(self._ids(tails)):
            if len(ids) > most:
                reasons_T[text] = _too_long(len(ids), most)
        return reasons_T

    def _misread(
        self, prompts: Sequence[str], responses: Sequence[str], tails: Sequence[str]
    ) -> list[str]:
        """The reason why the model would read something else than each of T texts, whatever its
        length; ``tails`` are the responses as written.
        """
        if not self.chat:
            return [""] * len(tails)
        return [
            next(
                (
                    f"a text with {mark}, by which the base's chat template tells turns apart"
                    for mark in self._control
                    if mark in prompt or mark in response
                ),
                "" if response.strip() in tail else _DROPPED,
            )
            for prompt, response, tail in zip(prompts, responses, tails, strict=True)
        ]

    def openings(self, prompts: Sequence[str], room: int) -> list[list[int]]:
        """Tokens of each prompt up to where a response begins; cut in front where it and ``room``
        more tokens would not fit into the context.

        Raises:
            InputError: there would be no room for a token of the prompt.
        """
        most = self.limit - room - len(self._before) - len(self._between)
        if most < 1:
            raise InputError(
                f"responses of {room} tokens leave no room for a prompt in the {self.limit} that "
                "the model reads: lower --max-new-tokens"
            )
        heads, _ = (self._exchanges if self.chat else self._plain)(prompts, ["a"] * len(prompts))
        return [[*self._before, *head[-most:], *self._between] for head in self._ids(heads)]

    @cached_property
    def ends(self) -> list[int]:
        """Tokens at which a response is over: the end of text, and the special token that a chat
        template writes after a response."""
        result = self._end([])
        if self.chat:
            _, (one, other) = self._exchanges(["a", "a"], ["a", "b"])
            shared = os.path.commonprefix([one[::-1], other[::-1]])  # noqa: RUF071 (no paths)
            after = shared[::-1].strip()
            special = {*self.tokenizer.all_special_ids}
            result += [token for token in next(self._ids([after]))[:1] if token in special]
        return [*dict.fromkeys(result)]

    def _last(self, ended: bool) -> list[int]:
        return self._after + (self._end(self._after) if ended and not self.chat else [])

    def _most(self, ended: bool) -> int:
        """Tokens of a response that can be read."""
        special = len(self._before) + len(self._between) + len(self._last(ended))
        return self.limit - special

    def windows(self, texts: Sequence[str]) -> tuple[Tokens, np.ndarray]:
        """Tokens of texts by themselves, with their end tokens, and the number of windows of each.

        Windows of at most ``limit`` tokens; each but a text's first begins with the last token of
        the one before, which is scored there. A text of a single token has no window.
        """
        if self.limit < 2:
            raise InputError("--max-tokens must be at least 2 for a token to follow on another")
        windows_R = np.zeros(len(texts), dtype=np.int64)

        def cut() -> Iterator[list[int]]:
            all_ids = counted_aloud(self._ids(texts, special=True), "tokenizing texts", len(texts))
            for row, ids in enumerate(all_ids):
                ids = [*ids, *self._end(ids)]
                for at in range(0, len(ids) - 1, self.limit - 1):
                    windows_R[row] += 1
                    yield ids[at : at + self.limit]

        ids, start_T = _joined(cut())
        return Tokens(ids, start_T, np.ones(len(start_T) - 1, np.int64), 0), windows_R

    def _end(self, written: Sequence[int]) -> list[int]:
        """The end of text, unless there is none or it is written already."""
        end = self.tokenizer.eos_token_id
        return [] if end is None or [*written[-1:]] == [end] else [end]

    def _ids(self, texts: Sequence[str], special: bool = False) -> Iterator[list[int]]:
        """Yield each text's tokens, in batches whose lists stay small."""
        for first, end in parts([len(text) for text in texts]):
            some = list(texts[first:end])
            with unbroken():
                result = self.tokenizer(
                    some,
                    add_special_tokens=special,
                    split_special_tokens=not self.chat,
                    return_attention_mask=False,
                    verbose=False,
                )
            yield from result["input_ids"]

    def _plain(
        self, prompts: Sequence[str], responses: Sequence[str]
    ) -> tuple[Sequence[str], Sequence[str]]:
        if self.pairs:
            return prompts, responses
        return [prompt + _BETWEEN for prompt in prompts], responses

    def _exchanges(
        self, prompts: Sequence[str], responses: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """The chat template's output, up to where the response begins and from there on."""
        heads, tails = [], []
        for prompt, response in zip(prompts, responses, strict=True):
            head, whole = self._templated(prompt, response)
            # Some templates begin an answer otherwise than they invite one: what both share.
            same = next((i for i, (a, b) in enumerate(zip(head, whole, strict=False)) if a != b), 0)
            at = len(head) if whole.startswith(head) else same
            heads.append(whole[:at])
            tails.append(whole[at:])
        return heads, tails

    def _templated(self, prompt: str, response: str) -> tuple[str, str]:
        """The prompt's turns and an invitation to answer; and the turns with the response.

        Where a template takes no such turns (many have none of the system, or want them to
        alternate), the prompt is one message of the user with names before its turns.
        """
        answer = {"role": "assistant", "content": response}
        turns = asked_turns(prompt)
        system = system_turn(turns, self.system)
        alone = [*system, {"role": "user", "content": prompt}]
        for given in ([*system, *turns], alone):
            try:
                head = written(self.tokenizer, given, invites=True)
                return head, written(self.tokenizer, [*given, answer], invites=False)
            except Exception:  # of a template's own making
                if given == alone:
                    raise
        raise AssertionError("one of the two is returned")

    def _check_system(self) -> None:
        """Check that the chat template writes the system prompt, and leaves room for a prompt."""
        if not self.chat:
            raise InputError(
                "--system: the base has no chat template that could write it: leave it out, or "
                "choose a --base with one"
            )
        try:
            (head,), _ = self._exchanges(["a"], ["a"])
        except Exception:  # of a template's own making
            head = ""
        if self.system.strip() not in head:
            raise InputError(
                "--system: the base's chat template does not write it: leave it out, or choose "
                "another --base"
            )
        if (tokens := len(next(self._ids([head])))) >= self.limit:
            raise InputError(
                f"--system: {tokens:,} tokens, of the {self.limit:,} that are read of a text: "
                "shorten it, or raise --max-tokens"
            )

    def _special(self) -> tuple[list[int], list[int], list[int]]:
        """Special tokens before, between and after prompt and response."""
        if self.chat:
            return [], [], []
        first, second = self._ids(["a", "b"])
        if not first or not second:
            raise InputError("--base: its tokenizer makes nothing of a text; is it complete?")
        if self.pairs:
            (whole,) = self.tokenizer(["a"], ["b"])["input_ids"]
            before, rest = _around(whole, first)
            between, after = _around(rest, second)
            return before, between, after
        (whole,) = self.tokenizer(["a"])["input_ids"]
        before, after = _around(whole, first)
        return before, [], after


_DROPPED = "a response of which the base's chat template drops a part, such as thoughts"


def _too_long(tokens: int, most: int) -> str:
    return (
        f"a response of {tokens} tokens does not fit into the {most} that are read of a text; "
        "shorten it, raise --max-tokens, or choose a --base with a longer context"
    )


def _joined(texts: Iterable[Sequence[int]]) -> tuple[torch.Tensor, np.ndarray]:
    """All texts' tokens, concatenated, and T + 1 offsets."""
    ids, start_T = joined((np.array(text, np.int32) for text in texts), np.dtype(np.int32))
    return as_tensor(ids), start_T


def _around(whole: list[int], part: list[int]) -> tuple[list[int], list[int]]:
    for at in range(len(whole)):
        if whole[at : at + len(part)] == part:
            return whole[:at], whole[at + len(part) :]
    raise InputError("--base: the tokenizer does not keep texts apart from its special tokens")
