"""How long the server's steps are, where nobody says it; post-processing of public numbers.

Each round's noise moves θ, measured along a feature direction of length one, by a Gaussian of
standard deviation rate·f_t·σC/M, where f_t is the schedule; with Adam, which divides by the
gradient's own scale, by about rate·f_t. The rate is chosen so that over the whole run this adds up
to a quarter of a logit (of a language model, to a share of what its layers say): larger steps drown
preferences of ordinary strength in noise, smaller ones leave budget unused. A strategy's file has
the step that it would take without noise, which is the longest (``RATE_CEILING``).
"""

import math
from dataclasses import replace

from murmuration.preference.policy_losses import DEFAULT, objective
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.steps.optimizers import OptimizerSettings

#: How far noise moves a linear head in a whole run, in logits.
NOISE_LOGITS = 0.25
#: Adam's step by what is trained, where there is no noise. θ is counted in units of what layers say
#: (`preference.language.base.network`), so neither widths nor ranks matter.
_RATES = {"lora": 0.05, "full": 0.01}
#: By the task: how far noise may move θ in a whole run, in these units, shares of what layers say;
#: and the longest step, over that of a linear head, since rounds are fewer. A reward is good if it
#: ranks well, and forgives more than the next token's distribution.
_STEPS = {"reward": (2.0, 40.0), "sft": (0.25, 10.0), "text": (0.25, 10.0), "policy": (1.0, 10.0)}
#: The longest of a policy whose loss clips, which holds it where others break.
_LONGEST_CLIPPED = 40.0


def noise_limited_rate(
    noise: float, settings: OptimizerSettings, ceiling: float, most: float = NOISE_LOGITS
) -> float:
    """The step size at which noise moves θ by ``most`` in each coordinate; see above.

    Args:
        noise: standard deviation per coordinate of one round's averaged update, σC/M.
        settings: for the schedule; its rate is not used.
        ceiling: the step size that would be taken without noise.
    """
    if settings.kind != "sgd" and noise > 0:
        noise = 1.0  # what is left of any noise after the division
    energy = math.sqrt(sum(settings.factor(t) ** 2 for t in range(1, settings.rounds + 1)))
    return ceiling if noise == 0 else min(ceiling, most / (noise * energy))


def steps_of(config: Settings, kind: str, noise: float, ceiling: float) -> OptimizerSettings:
    """The steps of a run: as it is set, else as the noise of a round allows.

    Args:
        config: the run's settings.
        kind: of optimizer, the strategy's default.
        noise: as of ``noise_limited_rate``.
        ceiling: the step size that the strategy would take without noise, of a linear head.
    """
    most = NOISE_LOGITS
    if config.trains_layers and noise:
        most, longest = _STEPS[config.task]
        if config.task == "policy" and objective(config.loss or DEFAULT).clips:
            longest = _LONGEST_CLIPPED
        ceiling *= longest
    elif config.trains_layers:
        kind, ceiling = "adam", _RATES[config.train or "lora"]
    settings = OptimizerSettings(
        kind=config.optimizer or kind,
        rate=config.learning_rate or ceiling,
        rounds=config.rounds,
        momentum=config.momentum,
    )
    if config.learning_rate:
        return settings
    return replace(settings, rate=noise_limited_rate(noise, settings, ceiling, most))
