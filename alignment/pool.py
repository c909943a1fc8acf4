"""Several answers to each of many prompts, and what a saved reward says of each of them.

Best of n, and whatever else chooses among answers, begins with this. A reward that a private run
released may be asked as often as one likes: that is post-processing, and no user's data are
touched.

Legend: P prompts, N answers to each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Union

import numpy as np

from murmuration.alignment.rewards import AnswerReward
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.generation import Sampling, Writer
from murmuration.preference.language.reward import SavedReward, system_of
from murmuration.preference.reward import RewardModel

if TYPE_CHECKING:
    from murmuration.alignment.endpoints.writer import EndpointWriter

#: What scores answers.
Reward = RewardModel | SavedReward
#: A model on this machine, or one behind an endpoint.
AnswerWriter = Union[Writer, "EndpointWriter"]


def writer_of(model: str, server: str = "", system: str | None = None) -> AnswerWriter:
    """The writer of a model's answers.

    Args:
        model: a folder or a base; with a server, one of its models.
        server: an OpenAI-compatible address up to /v1, or nothing.
        system: the system prompt; None: the one that the model was trained with, if it is here.

    Raises:
        InputError: the model cannot be loaded, or that is no address.
    """
    if not server:
        return Writer.load(model, system)
    from murmuration.alignment.endpoints.client import WRITER, Endpoint
    from murmuration.alignment.endpoints.writer import EndpointWriter

    system = system_of(model) if system is None else system
    return EndpointWriter(Endpoint(server, model, role=WRITER), system)


def cut_off_text(cut_off: int, answers: int, sampling: Sampling) -> str:
    """A sentence about truncated answers; empty if there are none."""
    if not cut_off:
        return ""
    return f"{cut_off:,} of {answers:,} answers were cut off at {sampling.max_new_tokens:,} tokens"


@dataclass(frozen=True, eq=False)
class Pool:
    """N answers to each of P prompts.

    Attributes:
        prompts: P of them.
        answers: for each prompt N texts.
        rewards_PN: float64, finite; only differences within a prompt mean anything.
    """

    prompts: Sequence[str]
    answers: Sequence[Sequence[str]]
    rewards_PN: np.ndarray


def load_reward(folder: Path) -> Reward:
    """Load a reward model; an InputError names `--reward`."""
    try:
        return RewardModel.load(str(folder))
    except InputError as error:
        raise InputError(f"--reward {error}") from None


def write_samples(
    writer: AnswerWriter,
    prompts: Sequence[str],
    sampling: Sampling,
    seeds: Sequence[Sequence[int]],
    progress: Callable[[int, int], None] = lambda *_: None,
) -> list[list[str]]:
    """Generate an answer to each prompt for each of the seeds.

    ``progress`` is called with the number of answers so far, and of all.

    Raises:
        InputError: as the writer raises it.
    """
    written = []
    for sample, seed in enumerate(seeds):

        def done(answers: int, of: int, before: int = sample * len(prompts)) -> None:
            progress(before + answers, len(seeds) * of)

        written.append(writer.write(prompts, sampling, seed, done))
    return [list(row) for row in zip(*written, strict=True)]


def seeds_of(seed: int, samples: int) -> list[tuple[int, int]]:
    """The seeds of ``samples`` answers to a prompt, as `murmuration respond` uses them."""
    return [(seed, sample) for sample in range(samples)]


def rewards(reward: Reward, prompts: Sequence[str], answers: Sequence[Sequence[str]]) -> np.ndarray:
    """The rewards of answers, (P, N) float64; equal texts have equal ones, to the last bit.

    Each text is scored once: in batches a language model's last digits depend on the others.

    Raises:
        InputError: a reward is not finite.
    """
    asked = [(prompt, text) for prompt, row in zip(prompts, answers, strict=True) for text in row]
    place = {pair: number for number, pair in enumerate(dict.fromkeys(asked))}
    found_T = AnswerReward(reward)([prompt for prompt, _ in place], [text for _, text in place])
    rows = np.array([found_T[place[pair]] for pair in asked], dtype=np.float64)
    return rows.reshape(len(prompts), -1)
