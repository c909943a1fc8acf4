"""Answers that a model behind a chat endpoint writes: vLLM's, llama.cpp's, Ollama's, any other.

Prompts leave the machine; nothing else does. One request is one answer. What comes back is data of
a stranger: it is bounded in length, and text that is no Unicode is mended, not kept.

The key, if the endpoint needs one, is in `MURMURATION_WRITER_KEY`; how it is guarded, and how
requests are bounded: `alignment.endpoints.client`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from murmuration.alignment.endpoints.client import Client, Completion, Endpoint
from murmuration.preference.data.conversations import asked_turns, system_turn
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.generation import Sampling

#: No tokenizer has so many characters a token on average: an answer beyond was not bounded by us.
_CHARACTERS_OF_A_TOKEN = 64
_ROUNDS = 3  # in which what could not be read is asked for again


class EndpointWriter:
    """A model that answers over the network, in place of `generation.Writer`.

    Attributes:
        cut_off: the number of truncated answers so far, as the endpoint reports.
    """

    def __init__(self, endpoint: Endpoint, system: str = "") -> None:
        """Send ``system``, if any, before prompts without a system prompt. Raises InputError as
        `Client`."""
        self._endpoint, self._client, self.cut_off = endpoint, Client(endpoint), 0
        self._system = system

    def write(
        self,
        prompts: Sequence[str],
        sampling: Sampling = Sampling(),  # noqa: B008  frozen
        seed: int | Sequence[int] = 0,
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> list[str]:
        """Generate an answer to each prompt, in order.

        The seed that is sent with each request depends on ``seed`` and the prompt's place. Whether
        that repeats an answer depends on the server.

        Args:
            prompts: texts, each the message of a user; of several turns each is sent as its own.
            sampling: temperature, top-p and the most tokens, which are sent.
            seed: one or several numbers, none negative.
            progress: is called with the number of answers so far, and of all.

        Raises:
            InputError: the endpoint refuses, cannot be reached, or does not answer every prompt.
        """
        entropy = [seed] if isinstance(seed, int) else [*seed]
        if min(entropy) < 0:
            raise InputError(f"--seed must not be negative; got {seed}")
        most = _CHARACTERS_OF_A_TOKEN * sampling.max_new_tokens
        answers: dict[str, Completion] = {}

        def read(completion: Completion) -> Completion | None:
            return completion if len(completion.text) <= most else None

        def count(done: int, of: int) -> None:
            progress(len(prompts) - of + done, len(prompts))

        missing = {
            str(place): self._body(prompt, sampling, [*entropy, place])
            for place, prompt in enumerate(prompts)
        }
        for _ in range(_ROUNDS):
            if not missing:
                break
            unreadable = self._client.ask(missing, read, answers.__setitem__, count)
            missing = {place: missing[place] for place in missing if place in unreadable}
        if missing:
            raise InputError(
                f"{self._endpoint.named}: {len(missing):,} of {len(prompts):,} prompts got no "
                f"answer of {self._endpoint.model} that can be read, or one that is longer than "
                "--max-new-tokens can be"
            )
        self.cut_off += sum(answer.cut_off for answer in answers.values())
        return [_text(answers[str(place)].text) for place in range(len(prompts))]

    def _body(self, prompt: str, sampling: Sampling, entropy: list[int]) -> dict[str, Any]:
        turns = asked_turns(prompt)
        return {
            "model": self._endpoint.model,
            "messages": [*system_turn(turns, self._system), *turns],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_new_tokens,
            "seed": int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1),
        }


def _text(answer: str) -> str:
    """The answer as text that can be encoded: a lone surrogate becomes "?"."""
    return answer.encode("utf-8", "replace").decode("utf-8").strip()
