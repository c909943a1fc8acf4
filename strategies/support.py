"""Which strategy has a guarantee under which adjacency.

Every strategy that bounds what one user does to a release is covered under all four relations.
AUP as published runs under all of them, and its guarantee is proven under none. Sampling single
examples (ELS) is covered where a user comes or goes: the proof compares the cohort's sum with and
without the user's examples, and nothing is proved for examples that are replaced. Strategies that
solve for the model on public prompts and responses protect labels only.
"""

from murmuration.privacy.adjacency import Adjacency, Unsupported

_ALL = frozenset(Adjacency)
_COMES_OR_GOES = frozenset({Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT})
_LABELS = frozenset({Adjacency.REPLACE_LABELS})

#: By strategy, or by strategy and variant. The non-private twin promises nothing under any.
SUPPORT: dict[str, frozenset[Adjacency]] = {
    "uls": _ALL,
    "dp-fedavg": _ALL,
    "els": _COMES_OR_GOES,
    "group": _ALL,
    "adaptive": _ALL,
    "aup": _ALL,
    "aup:published": _ALL,
    "aup:corrected": _ALL,
    "label-moment": _LABELS,
    "objective-perturbation": _LABELS,
    "local-label": _LABELS,
    "nonprivate": _ALL,
}

_WHY = {
    "els": "nothing is proved for a user whose examples are replaced",
    "label-moment": "the model is solved for on the prompts and responses, which must be public",
    "objective-perturbation": (
        "the model is solved for on the prompts and responses, which must be public"
    ),
    "local-label": "only labels are randomized; prompts, responses and their numbers are public",
}


def check(strategy: str, adjacency: Adjacency) -> None:
    """Unsupported (a ValueError), saying what to use instead, if there is no guarantee.

    ``strategy`` may name a variant after a colon; one that is not listed is as its strategy.
    """
    name = strategy if strategy in SUPPORT else strategy.partition(":")[0]
    allowed = SUPPORT[name]
    if adjacency not in allowed:
        listed = " or ".join(a for a in Adjacency if a in allowed)
        others = ", ".join(
            n for n, a in SUPPORT.items() if adjacency in a and n != "nonprivate" and ":" not in n
        )
        raise Unsupported(
            f"--strategy {strategy} has no guarantee under {adjacency}: {_WHY[name]}; "
            f"use --adjacency {listed}, or one of the strategies {others}"
        )
