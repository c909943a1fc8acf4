"""Judges of two answers: a truth, a reward model, or a language model.

Another package brings one by an entry point ``murmuration.judges``, which leads to a function of no
arguments that gives a ``Judge``: a class, most often.

Legend: P pairs of answers.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from murmuration.alignment.comparisons.win_rate import Worth, wins, worth
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.checkpoint import weights_digest
from murmuration.preference.reward import RewardModel
from murmuration.privacy.extensions import ExtensionError, Group
from murmuration.server.record.lineage import result_of_training
from murmuration.sims.population.population import Population

POPULATION = "population"
#: The judges that other packages bring.
JUDGES = Group(
    "murmuration.judges",
    lambda name, loaded: "" if callable(loaded) else "it is no function that gives a Judge",
    [POPULATION],
)


class Judge(Protocol):
    """A judge of answers."""

    def preferred(
        self, prompts: Sequence[str], first: Sequence[str], second: Sequence[str]
    ) -> np.ndarray:
        """The winner of two answers to each prompt, (P,): 1 for the first, 0 for the second, 0.5
        for a tie.

        A judge whose verdict may depend on the order judges both orders.

        Raises:
            InputError: it cannot judge these; the message has the reason.
        """
        ...

    def figures(self, prompts: Sequence[str], answers: Sequence[str]) -> dict[str, Any]:
        """Metrics of answers by themselves, for a result; may be empty."""
        ...

    def about(self) -> dict[str, Any]:
        """Its ``kind`` and ``name``, ``how`` it judged in a sentence, and ``caveats``; for a
        result."""
        ...


class PopulationJudge:
    """The embedded population's true reward, at its mean over users.

    An answer that cannot be read loses against one that can.
    """

    def preferred(
        self, prompts: Sequence[str], first: Sequence[str], second: Sequence[str]
    ) -> np.ndarray:
        """As `Judge`; raises InputError for a prompt that is not the population's."""
        return wins(_worth(prompts, first), _worth(prompts, second))

    def figures(self, prompts: Sequence[str], answers: Sequence[str]) -> dict[str, Any]:
        """True reward of what can be read, the share of what cannot, and why it cannot."""
        result = _worth(prompts, answers)
        return {
            "reward": result.reward,
            "unreadable": result.unreadable,
            "why_not": dict(result.why_not),
        }

    def about(self) -> dict[str, Any]:
        """As `Judge`."""
        return {
            "kind": POPULATION,
            "name": "the embedded population",
            "how": (
                "The true reward of the embedded population's crowd, read from an answer's words. "
                "An answer that cannot be read loses; equal rewards tie."
            ),
            "caveats": [
                "The population is synthetic: this is a truth about the method and says nothing of "
                "people."
            ],
        }


class RewardJudge:
    """A saved reward model, linear or a language model; a tie only where scores are equal."""

    def __init__(self, folder: str | Path) -> None:
        """Raises InputError if the folder holds none."""
        try:
            self._reward, self._name = RewardModel.load(folder), str(folder)
        except InputError as error:
            raise InputError(f"--judge {error}") from None

    def preferred(
        self, prompts: Sequence[str], first: Sequence[str], second: Sequence[str]
    ) -> np.ndarray:
        """As `Judge`; raises InputError for an answer that it cannot read, or a score that is not a
        number.
        """
        try:
            one_P, other_P = (self._reward.score(prompts, side) for side in (first, second))
        except InputError as error:
            raise InputError(f"--judge {self._name}: {error}") from None
        if not (np.isfinite(one_P).all() and np.isfinite(other_P).all()):
            raise InputError(f"--judge {self._name}: it gives a score that is not a finite number")
        return np.where(one_P == other_P, 0.5, (one_P > other_P).astype(float))

    def figures(self, prompts: Sequence[str], answers: Sequence[str]) -> dict[str, Any]:
        """Empty: only differences of its scores are meaningful."""
        return {}

    def about(self) -> dict[str, Any]:
        """As `Judge`."""
        return {
            "kind": "reward",
            "name": self._name,
            "how": "The answer with the higher score of a saved reward model wins."
            + _accuracy_text(Path(self._name)),
            "caveats": [
                "It is a model's opinion and no truth. A policy that was trained to please this "
                "reward, or one of the same judgements, wins here whether or not people would "
                "like it."
            ],
        }


class InstalledJudge:
    """A judge of another package, by its name; whatever it raises is an InputError of one line."""

    def __init__(self, name: str) -> None:
        """Raises InputError if it cannot be used."""
        self._name = name
        try:
            made = JUDGES.load(name)
        except ExtensionError as error:
            raise InputError(f"--judge {error}") from None
        self._judge: Judge = self._ask(made)

    def preferred(
        self, prompts: Sequence[str], first: Sequence[str], second: Sequence[str]
    ) -> np.ndarray:
        """As `Judge`; raises InputError for invalid verdicts."""
        verdict_P = self._ask(
            lambda: np.asarray(self._judge.preferred(prompts, first, second), dtype=float)
        )
        if verdict_P.shape != (len(prompts),) or not np.isin(verdict_P, (0.0, 0.5, 1.0)).all():
            raise InputError(
                f"--judge {self._name}: its verdicts are not 0, 0.5 or 1 for each pair"
            )
        return verdict_P

    def figures(self, prompts: Sequence[str], answers: Sequence[str]) -> dict[str, Any]:
        """As `Judge`."""
        return self._ask(lambda: dict(self._judge.figures(prompts, answers)))

    def about(self) -> dict[str, Any]:
        """As `Judge`; its kind and name are those of the entry point."""
        said = self._ask(lambda: dict(self._judge.about()))
        how, caveats = str(said.get("how", "")), [str(each) for each in said.get("caveats", ())]
        return {"kind": "package", "name": self._name, "how": how, "caveats": caveats}

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise InputError(f"--judge {self._name} failed: {why}") from None


def judge_of(
    named: str,
    *,
    model: str = "",
    kept: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Judge:
    """The judge that `--judge` names: ``population``, an address, another package's judge, or the
    folder of a reward model.

    Args:
        named: its name.
        model: the endpoint's model; required for an endpoint only.
        kept: the file of an endpoint's verdicts; required for an endpoint.
        progress: is called with the number of verdicts so far, and of all.

    Raises:
        InputError: there is no such judge, or an option is missing or unused.
    """
    if named.startswith(("http://", "https://")):
        from murmuration.alignment.endpoints.client import Endpoint
        from murmuration.alignment.endpoints.judge import EndpointJudge

        endpoint = Endpoint(named, model)
        if kept is None:
            raise InputError("--judge by an endpoint needs --out: what was paid for is kept there")
        return EndpointJudge(endpoint, kept, progress)
    if model:
        raise InputError(f"--judge-model is for a --judge behind an address, not for {named}")
    if named == POPULATION:
        return PopulationJudge()
    if named in JUDGES.names():
        return InstalledJudge(named)
    if not Path(named).exists():
        names = ", ".join((POPULATION, *JUDGES.names()))
        raise InputError(f"--judge {named}: no such model folder; judges that have a name: {names}")
    return RewardJudge(named)


def _accuracy_text(folder: Path) -> str:
    """A sentence with the held-out accuracy of the run beside a model; empty if there is none."""
    folder = folder.expanduser().resolve()
    result = result_of_training(folder.parent) if folder.name == "model" else None
    if not result or result.heldout_accuracy is None or result.weights != weights_digest(folder):
        return ""
    return (
        " On judgements that were held out from its own run it was right in "
        f"{result.heldout_accuracy:.1%}."
    )


def _worth(prompts: Sequence[str], answers: Sequence[str]) -> Worth:
    try:
        return worth(prompts, answers, Population().crowd)
    except InputError as error:
        raise InputError(
            f"--judge {POPULATION}: {error}; take --prompts population:seen or "
            "population:unseen, or another --judge"
        ) from None
