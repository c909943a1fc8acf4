"""``--loss selfplay``: labels say how people prefer, in circles if they do, and a policy plays.

It is no loss of a judgement. It stands for χPO's rewards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from murmuration.preference.escaping import get_logger
from murmuration.preference.policy_losses import objective

if TYPE_CHECKING:
    from murmuration.preference.kinds.policy import PolicyModel
    from murmuration.preference.language.policy_fit import PolicyFit
    from murmuration.strategies.protocol.public_items import PublicItems
    from murmuration.strategies.solved.local_label import Told

_log = get_logger("murmuration")


def played(
    policy: PolicyModel, items: PublicItems, fit: PolicyFit
) -> Callable[[Told], tuple[np.ndarray, list[str]]]:
    """The function that plays a policy against itself, by a preference estimated from labels."""
    from murmuration.preference.language.next_tokens import scored_tokens
    from murmuration.research.strategies.self_play.general_preference import GeneralPreference
    from murmuration.research.strategies.self_play.play import SelfPlay

    play = SelfPlay(fit=fit)

    def solve(labels: Told) -> tuple[np.ndarray, list[str]]:
        judgements = labels.judgements(items)
        shown = [(responses[0], responses[1]) for responses in judgements.responses]
        preference = GeneralPreference.fit(shown, labels.contrast_N)
        examples = policy.examples(judgements)
        tokens = scored_tokens(examples.tokens, np.arange(len(examples.tokens.lengths_T)))
        longest = max(1, min(int(tokens.max()), policy.network.texts.limit // 2))

        def progress(done: int, iterations: int) -> None:
            _log.info("policy: iteration %d of %d", done, iterations)

        prompts = sorted(set(judgements.prompts))
        return play(preference, prompts, policy.network, policy.examples, longest, progress), [
            f"The policy is the last of {play.iterations} that self-play went through, on "
            f"{play.pairs} pairs that the base wrote; the paper's result is drawn from all of them."
        ]

    return solve


SELF_PLAY = replace(objective("square-chipo"), name="selfplay", clips=False, fitter=played)
