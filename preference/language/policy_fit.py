"""Fitting a policy to judgements that lie here: many passes, no clipping, no noise.

For labels that may be looked at as often as one likes: those that left their users randomized, or
public ones. Adam on θ, in whose units steps suit all parameters alike, with a rising and a falling
rate; gradients longer than one are shortened to it, since χPO's grow with the policy's ratio.

Legend: J judgements, N of a step, D trained parameters.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from murmuration.preference.data.errors import InputError
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.examples.policies import PolicyExamples
from murmuration.preference.language.tokens import length_batches
from murmuration.preference.models import PreferenceModel, preference_model

_LONGEST = 1.0  # gradient
_WARMUP = 0.05  # of the steps: in which the rate rises
#: By what is trained, of those that were tried (`docs/research/language-models.md`).
FIT_RATES = {"lora": 0.1, "full": 0.003}


@dataclass(frozen=True)
class PolicyFit:
    """The length and steps of a fit.

    Attributes:
        epochs: passes over all judgements.
        batch: judgements of a step.
        rate: the largest step, in θ's units; `FIT_RATES` has recommended ones.
        seed: of the order of judgements.

    Raises:
        InputError: a number that is not positive.
    """

    epochs: int = 1
    batch: int = 64
    rate: float = FIT_RATES["lora"]
    seed: int = 0

    def __post_init__(self) -> None:
        for name, option in (("epochs", "--epochs"), ("batch", "a batch")):
            if getattr(self, name) < 1:
                raise InputError(f"{option} must be at least 1; got {getattr(self, name)}")
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise InputError(f"--learning-rate must be a positive number; got {self.rate}")

    def steps(self, judgements: int) -> int:
        """The number of steps."""
        return self.epochs * -(-judgements // self.batch)

    def __call__(
        self,
        examples: PolicyExamples,
        weight_J: np.ndarray | None = None,
        model: PreferenceModel | None = None,
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> np.ndarray:
        """θ after all steps, (D,) float32.

        Args:
            examples: with at least one judgement.
            weight_J: the weight of each judgement; equal without.
            model: of preferences; BTL without.
            progress: is called with the number of steps done, and of all.

        Raises:
            InputError: a gradient is not finite, or there is nothing to fit to.
        """
        base, judgements = examples.base, len(examples.text_JK)
        if not judgements:
            raise InputError("there are no judgements to fit a policy to")
        each_J = np.ones(judgements) if weight_J is None else weight_J / weight_J.mean()
        model = model or preference_model("btl")
        examples.prepare(np.arange(judgements), together=True)
        theta_D = torch.zeros(base.dimension, device=base.device, requires_grad=True)
        optimizer, steps = torch.optim.Adam([theta_D], self.rate), self.steps(judgements)
        for step, taken_N in enumerate(self._batches(judgements)):
            optimizer.param_groups[0]["lr"] = self.rate * share_of_rate(step, steps)
            base.put(theta_D.detach())
            theta_D.grad = self._gradient(examples, taken_N, each_J, model)
            optimizer.step()
            progress(step + 1, steps)
        base.put(torch.zeros(base.dimension))
        return theta_D.detach().cpu().numpy()

    def _batches(self, judgements: int) -> Iterator[np.ndarray]:
        generator = np.random.default_rng(self.seed)
        for _ in range(self.epochs):
            order_J = generator.permutation(judgements)
            yield from (order_J[at : at + self.batch] for at in range(0, judgements, self.batch))

    def _gradient(
        self,
        examples: PolicyExamples,
        taken_N: np.ndarray,
        weight_J: np.ndarray,
        model: PreferenceModel,
    ) -> torch.Tensor:
        """The gradient of the mean loss at the θ that was put, (D,), clipped to length one."""
        base = examples.base
        text_NK = examples.text_JK[taken_N]
        length_NK = np.where(text_NK >= 0, examples.tokens.lengths_T[text_NK], 0)
        with base.computing(), base.differentiable() as parameters:
            for places in length_batches(length_NK.sum(1), base.batch_tokens):
                some_N, text_PK = taken_N[places], text_NK[places]
                weight_P = weight_J[some_N] / len(taken_N)
                examples.differentiate(text_PK[text_PK >= 0], some_N, weight_P, model)
            grad_D = shortened_gradient(base, parameters)
        if grad_D is None:
            raise InputError(
                "a step of the policy is not finite: use a smaller --learning-rate, or another "
                "--loss"
            )
        return grad_D


def share_of_rate(step: int, steps: int) -> float:
    """A step's learning rate as a share of the largest: rising at first, then falling to 0."""
    return min(1.0, (step + 1) / max(1.0, _WARMUP * steps)) * (1.0 - step / steps)


def shortened_gradient(
    base: LanguageBase, parameters: Mapping[str, torch.Tensor]
) -> torch.Tensor | None:
    """The gradient accumulated in parameters, clipped to length one in θ's units, (D,); None if it
    is not finite. It is removed from the parameters.
    """
    flat = [
        (torch.zeros_like(p) if p.grad is None else p.grad).float().reshape(1, -1)
        for p in parameters.values()
    ]
    grads_1D = torch.cat(flat, dim=1)
    flat.clear()
    for parameter in parameters.values():
        parameter.grad = None
    grad_D = base.to_theta(grads_1D)[0]
    length = float(grad_D.norm())
    if not math.isfinite(length):
        return None
    return grad_D.mul_(min(1.0, _LONGEST / max(length, 1e-30)))
