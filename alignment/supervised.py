"""Supervised fine-tuning before a reward is climbed: on public demonstrations, with our templating.

The model is trained on the next token of each answer, its end included, after its prompt, whose
tokens are not scored: the mean over the tokens of a step. LoRA layers are trained, in θ's units as
by `preference.language.policy_fit`, and saved as an adapter. A policy that is trained on top of an
adapter is saved whole, so that it needs neither the base nor this folder to be where it was.

It is post-processing like what follows: demonstrations must be public, their answers as much as
their prompts.

Legend: J demonstrations, N of a step, R at a time, D trained parameters.
"""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from murmuration.alignment.writing import writing
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import load_demonstrations
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.examples.next_tokens import differentiate_texts, scored_tokens
from murmuration.preference.language.policy_fit import share_of_rate, shortened_gradient
from murmuration.preference.language.tokens import Tokens, length_batches
from murmuration.privacy.durable_files import replace_file

Rows = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Supervised:
    """The settings of training on demonstrations.

    Attributes:
        source: of the demonstrations; empty for none.
        epochs: passes over them.
        batch: of a step.
        rate: the largest step, in θ's units.

    Raises:
        InputError: a value out of range.
    """

    source: str = ""
    epochs: int = 1
    batch: int = 16
    rate: float = 0.1

    def __post_init__(self) -> None:
        for name, option in (("epochs", "--sft-epochs"), ("batch", "--sft-batch-size")):
            if getattr(self, name) < 1:
                raise InputError(f"{option} must be at least 1; got {getattr(self, name)}")
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise InputError(f"--sft-learning-rate must be a positive number; got {self.rate}")

    def rows(self) -> Rows:
        """The demonstrations; InputError where they cannot be read, or there are none."""
        try:
            result = list(load_demonstrations(self.source))
        except InputError as error:
            raise InputError(f"--sft {error}") from None
        if not result:
            raise InputError(f"--sft {self.source} is empty")
        return result


def supervise(
    base: LanguageBase,
    rows: Rows,
    how: Supervised,
    seed: int,
    state: Path,
    *,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> tuple[np.ndarray, float]:
    """θ after all steps, (D,), and the last pass's loss in nats per token.

    Args:
        base: moved to that θ; with LoRA layers and a causal task.
        rows: prompts and answers; at least one.
        how: the settings.
        seed: of their order.
        state: the file of the state after each pass, for resuming; its folder must exist.
        progress: is called with the number of steps done, and of all.

    Raises:
        InputError: an answer does not fit into the context, or a step is not finite.
    """
    try:
        tokens = base.texts([prompt for prompt, _ in rows], [told for _, told in rows], ended=True)
    except InputError as error:
        raise InputError(f"--sft {how.source}: {error}") from None
    base.keep_lower(tokens, np.arange(len(rows)))
    theta_D = torch.zeros(base.dimension, device=base.device, requires_grad=True)
    optimizer, done, loss = torch.optim.Adam([theta_D], how.rate), 0, math.nan
    if state.exists():
        kept = torch.load(state, map_location=base.device, weights_only=True)
        theta_D.data.copy_(kept["theta_D"])
        optimizer.load_state_dict(kept["optimizer"])
        done, loss = int(kept["epochs"]), float(kept["loss"])
    each = -(-len(rows) // how.batch)
    steps = each * how.epochs
    for epoch in range(done, how.epochs):
        order_J, losses = np.random.default_rng([seed, 3, epoch]).permutation(len(rows)), []
        for at in range(each):
            step = epoch * each + at
            optimizer.param_groups[0]["lr"] = how.rate * share_of_rate(step, steps)
            base.put(theta_D.detach())
            taken_N = order_J[at * how.batch : (at + 1) * how.batch]
            theta_D.grad, result = _gradient(base, tokens, taken_N)
            optimizer.step()
            losses.append(result)
            progress(step + 1, steps)
        loss = float(np.mean(losses))
        _keep(state, theta_D, optimizer, epoch + 1, loss)
    base.put(theta_D.detach())
    return theta_D.detach().cpu().numpy(), loss


def _keep(
    state: Path, theta_D: torch.Tensor, optimizer: torch.optim.Optimizer, epochs: int, loss: float
) -> None:
    written = io.BytesIO()
    torch.save(
        {
            "theta_D": theta_D.detach(),
            "optimizer": optimizer.state_dict(),
            "epochs": epochs,
            "loss": loss,
        },
        written,
    )
    with writing(state):
        replace_file(state, written.getvalue())


def _gradient(
    base: LanguageBase, tokens: Tokens, taken_N: np.ndarray
) -> tuple[torch.Tensor, float]:
    """The gradient of the mean loss of a step's answers at the θ that was put, (D,), clipped to
    length one; and that loss, in nats per token.
    """
    scored_N = scored_tokens(tokens, taken_N)
    scored, loss = int(scored_N.sum()), 0.0
    length_N = tokens.lengths_T[taken_N]
    with base.computing(), base.differentiable() as parameters:
        for places in length_batches(length_N, base.batch_tokens):
            each_R = np.full(len(places), 1.0 / scored)
            loss += float(differentiate_texts(base, tokens, taken_N[places], each_R))
        grad_D = shortened_gradient(base, parameters)
    if grad_D is None:
        raise InputError("a step of --sft is not finite: use a smaller --sft-learning-rate")
    return grad_D, loss
