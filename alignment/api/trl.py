"""A saved reward for TRL's own trainers.

    from trl import GRPOTrainer
    from murmuration import reward_function
    GRPOTrainer(model, reward_funcs=reward_function("runs/ada/model"), train_dataset=prompts)

The reward reads prompts and completions as ``murmuration score`` does, with its own templating;
TRL's policy may have another. ``murmuration align`` does all of it, with guards against gaming the
reward, a look at what the reward cost its users, and a card that says it: none of which is here. So
train the reward with ``--length none``: with the default it pays, up to a bound, for mere words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from murmuration.preference.scoring import Text, strings_of

if TYPE_CHECKING:
    from murmuration.api.run import Run
    from murmuration.preference.language.reward import SavedReward
    from murmuration.preference.reward import RewardModel


def reward_function(
    model: Run | RewardModel | SavedReward | str | PathLike[str],
) -> Callable[..., list[float]]:
    """A function for ``reward_funcs`` of TRL's GRPO and RLOO trainers.

        >>> from murmuration import reward_function
        >>> reward = reward_function("runs/reward/model")
        >>> len(reward(["What now?", "What now?"], ["Save it.", "Bet on it."]))
        2

    Args:
        model: A run, its ``model``, or the folder of one.

    Returns:
        A function of ``prompts``, ``completions`` and keywords that it leaves alone, which gives a
        reward for each, in batches. Prompts and completions are strings or lists of messages: of a
        completion the last message counts; a prompt is written down as it is in a file of
        judgements (``preference.scoring``).

    Raises:
        InputError: the folder is no reward; when called, a reward is not finite.
    """
    from murmuration.alignment.rewards import AnswerReward
    from murmuration.api.run import Run, model_folder

    if isinstance(model, Run | str | PathLike):
        reward = AnswerReward.load(model_folder(model))
    else:
        reward = AnswerReward(model)

    def murmuration_reward(
        prompts: Sequence[Text], completions: Sequence[Text], **_: Any
    ) -> list[float]:
        return reward(*strings_of(prompts, completions)).tolist()

    return murmuration_reward
