"""Models of a preference: how likely a judgement is, given the scores of what was shown.

A judgement over K responses enters as its W = K − 1 logits z_k = r(first) − r(other_k), where the
first is the preferred one (`preference.linear.examples`). A model gives the loss of a judgement and
the derivative of the loss by each logit, its slopes; a linear head's gradient is then the sum of
slopes times rows (`preference.linear.likelihoods`).

- `btl` (Bradley, Terry, Luce): P(first is preferred) = σ(z). Pairs.
- `thurstone`: P(first is preferred) = Φ(z), the Gaussian distribution function. Pairs.
- `plackett-luce`: P(j is the best) = exp(r_j) / Σ_i exp(r_i); a whole ranking is the product of
  such choices, each among what is left. For two responses it is `btl`.
  Of a ranking with ties each response is chosen among itself and all that is below its place. By
  Luce's axiom each of these chances is exact; their product is a composite likelihood, as a pairs'
  would be, and without ties the likelihood itself. What ties says nothing about each other; two
  responses that tie, or all of them, say nothing at all.
- `thumbs`: P(thumbs up) = σ(r + b), z = r, with an offset b of the user's own: see
  `preference.linear.offsets`. Not a judgement's loss but a user's; the model is given one user's
  judgements at a time, all that count.

Another package brings a model by an entry point `murmuration.losses`, which is named as the model
and leads to its `PreferenceLoss`; `pair_loss` makes one of any link F for pairs.

What is known of a judgement need not be one answer. For pairs y is the probability that the first
is preferred: 1, or ½ for a tie. For rankings y_k is 1, or ½ where other_k ties with the response
before it. For the best of K, 1 − y_k is the mass on other_k: a tie among
several divides it equally. The loss is then the mean over these answers, and nothing here asks
masses to lie in [0, 1]: unbiased estimates of labels behind randomized response do not.

Sources: Chowdhury et al. 2024 (label DP), §3 and §4.4; AUP-RLHF, App. B.4; Turner et al. 2020
(Luce's axiom); Varin, Reid and Firth 2011 (composite likelihoods).

Legend: J judgements, W logits of each, K = W + 1 responses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

from murmuration.preference.choices import Kind
from murmuration.preference.data.errors import InputError
from murmuration.privacy.extensions import ExtensionError, Group

if TYPE_CHECKING:
    import torch

    _Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

#: The y of a logit that is not there: a judgement over fewer responses than its neighbours. No
#: number could stand for it, since an estimated mass may be any.
ABSENT = math.inf


@dataclass(frozen=True)
class PreferenceModel:
    """A loss over judgements and its derivative; both take logits (J, W) and y (J, W).

    Attributes:
        name: as in `MODELS`.
        residual: the slopes (J, W): derivatives of each judgement's loss by its logits. By tensor
            operations, whose last bits may depend on where in the tensor a judgement stands.
        loss: the loss of each judgement (J,).
        code: of its compiled slopes in `preference.linear.numba_gradients`; None where there are
            none.
        of_user: whether a judgement's slope depends on its user's other judgements: both functions
            then take those of one user and no others.
    """

    name: str
    residual: _Function
    loss: _Function
    code: int | None = None
    of_user: bool = False

    def each(self, logits_JW: torch.Tensor, y_JW: torch.Tensor) -> torch.Tensor:
        """The slopes (J, W) float32, each judgement's by itself, to the last bit: they depend
        neither on the judgements beside it nor on the responses that it has not.

        Raises:
            ValueError: a model of users, not of judgements.
        """
        if self.of_user:
            raise ValueError(
                f"--model {self.name} is of a user's judgements, not of each by itself"
            )
        z_JW, y_JW = logits_JW.float().contiguous(), y_JW.float().contiguous()
        slope_JW = z_JW.new_zeros(z_JW.shape)
        if self.code is not None:
            from murmuration.preference.linear import numba_gradients

            numba_gradients.residuals(z_JW.numpy(), y_JW.numpy(), self.code, slope_JW.numpy())
            return slope_JW
        for j, there in enumerate(y_JW.isfinite().sum(1).tolist()):
            slope_JW[j, :there] = self.residual(z_JW[j : j + 1, :there], y_JW[j : j + 1, :there])
        return slope_JW


class Link(Protocol):
    """F of a pair model P(first is preferred) = F(z), by its logarithm, which is what stays exact.

    F is smooth and strictly increasing from 0 to 1, with F(z) = 1 − F(−z); where log F is concave
    the loss is convex. Both functions work element by element.
    """

    def log_cdf(self, z: torch.Tensor) -> torch.Tensor:
        """log F(z)."""
        ...

    def log_slope(self, z: torch.Tensor) -> torch.Tensor:
        """Its derivative F′(z) / F(z)."""
        ...


def pair_model(name: str, link: Link, code: int | None = None) -> PreferenceModel:
    """The model of pairs with the loss −y·log F(z) − (1 − y)·log F(−z)."""

    def residual(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> torch.Tensor:
        return (1.0 - y_J1) * link.log_slope(-logits_J1) - y_J1 * link.log_slope(logits_J1)

    def loss(logits_J1: torch.Tensor, y_J1: torch.Tensor) -> torch.Tensor:
        log_first, log_other = link.log_cdf(logits_J1), link.log_cdf(-logits_J1)
        return -(y_J1 * log_first + (1.0 - y_J1) * log_other).squeeze(-1)

    return PreferenceModel(name, residual, loss, code)


@dataclass(frozen=True)
class PreferenceLoss:
    """A preference model.

    Attributes:
        name: of `--model`.
        help: what it is for, after its name, as in "for pairs".
        scores: the name of differences of scores under it, in the plural, as in "log odds".
        model: its loss and slopes, for judgements of a kind with a number of logits each.
        kinds: of judgements that it is for.
        several: whether judgements may be over more than two responses.
        logistic: whether it is of exponential form, so that labels enter the gradient only in a sum
            with the features: what strategies that release this sum need.
        link: F, of a model of pairs that is not logistic; estimators from randomized labels need
            the one or the other.
    """

    name: str
    help: str
    scores: str
    model: Callable[[Kind, int], PreferenceModel]
    _: KW_ONLY
    kinds: tuple[Kind, ...] = ("pairs", "top-1", "ranking")
    several: bool = False
    logistic: bool = False
    link: Callable[[], Link] | None = None


def pair_loss(name: str, link: Link, *, help: str, scores: str) -> PreferenceLoss:
    """Declare the model of pairs of a link of your own; arguments as of `PreferenceLoss`."""
    return PreferenceLoss(
        name, help, scores, lambda kind, width: pair_model(name, link), link=lambda: link
    )


def _btl(kind: Kind, width: int) -> PreferenceModel:
    return _logistic_pairs("btl")


def _logistic_pairs(name: str) -> PreferenceModel:
    from murmuration.preference.linear import likelihoods
    from murmuration.preference.linear.numba_gradients import BTL

    return PreferenceModel(name, likelihoods.btl_residual, likelihoods.btl_loss, BTL)


def _thurstone(kind: Kind, width: int) -> PreferenceModel:
    from murmuration.preference.linear.numba_gradients import THURSTONE

    return pair_model("thurstone", _gaussian(), THURSTONE)


def _gaussian() -> Link:
    from murmuration.preference.linear.likelihoods import Gaussian

    return Gaussian()


def _plackett_luce(kind: Kind, width: int) -> PreferenceModel:
    from murmuration.preference.linear import likelihoods as of
    from murmuration.preference.linear.numba_gradients import BEST, RANKING

    name = "plackett-luce"
    if kind == "ranking" and width == 1:
        return PreferenceModel(name, of.ranked_pair_residual, of.ranked_pair_loss, RANKING)
    if kind == "ranking":
        return PreferenceModel(name, of.ranking_residual, of.ranking_loss, RANKING)
    if width == 1:
        return _logistic_pairs(name)
    return PreferenceModel(name, of.best_residual, of.best_loss, BEST)


def _thumbs(kind: Kind, width: int) -> PreferenceModel:
    from murmuration.preference.linear import likelihoods as of
    from murmuration.preference.linear.numba_gradients import THUMBS

    return PreferenceModel("thumbs", of.thumbs_residual, of.thumbs_loss, THUMBS, of_user=True)


_OURS = {
    loss.name: loss
    for loss in (
        PreferenceLoss("btl", "for pairs", "log odds", _btl, logistic=True),
        PreferenceLoss("thurstone", "for pairs", "normal quantiles", _thurstone, link=_gaussian),
        PreferenceLoss(
            "plackett-luce",
            "for the best of several or rankings",
            "log odds",
            _plackett_luce,
            several=True,
            logistic=True,
        ),
        PreferenceLoss(
            "thumbs",
            "for --kind thumbs",
            "log odds",
            _thumbs,
            kinds=("thumbs",),
            logistic=True,
        ),
    )
}
#: Those of ours.
MODELS = tuple(_OURS)
#: The one of these for judgements of a kind that has only one.
ONLY_MODELS = {"thumbs": "thumbs", "top-1": "plackett-luce", "ranking": "plackett-luce"}


def _check_declared(name: str, loaded: object) -> str:
    if not isinstance(loaded, PreferenceLoss):
        return "it is no PreferenceLoss"
    return "" if loaded.name == name else f"it is called {loaded.name!r}"


#: Those that other packages bring.
LOSSES = Group("murmuration.losses", _check_declared, _OURS)


def in_words() -> str:
    """The models of this package, listed by purpose."""
    names: dict[str, list[str]] = {}
    for loss in _OURS.values():
        names.setdefault(loss.help, []).append(loss.name)
    return ", ".join(f"{' or '.join(of)} {help_}" for help_, of in names.items())


def models() -> tuple[str, ...]:
    """The names of all models, those of other packages last; none of these is imported."""
    return (*MODELS, *LOSSES.names())


def declared(name: str) -> PreferenceLoss:
    """The declaration of a model.

    Raises:
        InputError: an unknown name, or another package's that cannot be used.
    """
    if name in _OURS:
        return _OURS[name]
    if name not in LOSSES.names():
        raise InputError(f"--model must be one of {', '.join(models())}; got {name!r}")
    try:
        return LOSSES.load(name)
    except ExtensionError as error:
        raise InputError(f"--model {error}") from None


def find(name: str) -> PreferenceLoss | None:
    """The declaration of a model; None if it cannot be used here."""
    try:
        return declared(name)
    except InputError:
        return None


def check_model(name: str, width: int, kind: Kind = "pairs") -> None:
    """Check that a preference model is for judgements of a kind, over as many as ``width`` + 1
    responses.

    Raises:
        InputError: an unknown name, a model of pairs for judgements over more, or thumbs and
            another model or the other way round; or another package's whose slopes or losses
            cannot be used.
    """
    loss = declared(name)
    if ("thumbs" in loss.kinds) != (kind == "thumbs"):
        raise InputError(
            "--model thumbs is for thumbs up and down, and these are declared with --kind thumbs: "
            f"use both or none; got --model {name} and --kind {kind}"
        )
    if kind not in loss.kinds:
        raise InputError(f"--model {name} is for {', '.join(loss.kinds)}, not for --kind {kind}")
    if width > 1 and not loss.several:
        raise InputError(
            f"--model {name} is a model of pairs, and judgements are declared to be over as many "
            f"as {width + 1} responses: use --model plackett-luce"
        )
    if name not in _OURS:
        _made(name, kind, width)


def preference_model(name: str, kind: Kind = "pairs", width: int = 1) -> PreferenceModel:
    """The model that `--model` names, for judgements of a kind and W = ``width``.

    Raises:
        InputError: an unknown name, or a model of pairs for judgements over more than two
            responses.
    """
    check_model(name, width, kind)
    return _made(name, kind, width)


@cache
def _made(name: str, kind: Kind, width: int) -> PreferenceModel:
    model = declared(name).model(kind, width)
    if model.name != name or (model.of_user and kind != "thumbs"):
        raise InputError(f"--model {name}: its model is called {model.name!r}, or is of users")
    if name not in _OURS:
        _check_computes(model, width)
    return model


def _check_computes(model: PreferenceModel, width: int) -> None:
    """Refuse another package's model whose slopes or losses of two judgements are not of their
    shapes, or not finite where all scores are alike: its users would count as zero."""
    import torch

    logits_JW, y_JW = torch.zeros(2, width), torch.ones(2, width)
    for what, function, shape in (
        ("slopes", model.residual, (2, width)),
        ("losses", model.loss, (2,)),
    ):
        try:
            computed = torch.as_tensor(function(logits_JW, y_JW))
        except Exception as error:  # whatever somebody else's code does
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(f"--model {model.name}: its {what} failed: {why}") from None
        if tuple(computed.shape) != shape:
            raise InputError(
                f"--model {model.name}: its {what} of logits of shape (2, {width}) have the shape "
                f"{tuple(computed.shape)} instead of {shape}"
            )
        if not computed.isfinite().all():
            raise InputError(f"--model {model.name}: its {what} at logits of zero are not finite")
