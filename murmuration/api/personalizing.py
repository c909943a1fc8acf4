"""Does a reward of one's own serve people better than the crowd's? Asked of a model that is there.

Source: Charles et al. 2024, Appendix J.2, whose figures are exact; here they are one release with
noise, charged to a ledger.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from murmuration.api.quiet import quiet_libraries
from murmuration.api.run import Run, model_folder
from murmuration.preference.data.in_memory import Source, located_rows
from murmuration.preference.data.rows import InputError
from murmuration.privacy.strict_json import strict_json

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table

    from murmuration.preference.data.judgements import Judgements
    from murmuration.preference.language.reward import SavedReward
    from murmuration.preference.linear.half_predictions import Own
    from murmuration.preference.reward import RewardModel
    from murmuration.privacy.mechanisms.tally import Measured

LEDGER, RESULT, PLOT = "ledger.jsonl", "personal.json", "users.png"
#: A ledger has one. What is released is pure: it costs its epsilon at any.
_DELTA = 1e-5
_COVERS = "what users gain by rewards of their own"


@dataclass(frozen=True)
class Personalized:
    """Users' gains by rewards of their own, with noise. As text it is what
    ``murmuration personalize`` prints.

    Attributes:
        path: the folder with ledger, figures and plot.
        epsilon: what the release cost; δ is 0.
        adjacency: the relation between neighbouring data sets.
        own: how a user's own reward is made: ``basis`` or ``local steps``.
        measured: the figures; accuracy is of the crowd's reward, ``personal`` of users' own.
    """

    path: Path
    epsilon: float
    adjacency: str
    own: str
    measured: Measured

    def to_json(self) -> dict[str, Any]:
        """Return what ``murmuration personalize --json`` prints."""
        measured = self.measured
        return {
            "out": str(self.path),
            "epsilon": self.epsilon,
            "delta": 0.0,
            "adjacency": self.adjacency,
            "own": self.own,
            "before": measured.accuracy,
            "before_noise": measured.noise,
            "after": measured.personal,
            "gain_error": measured.gain_error,
            "gain_noise": measured.gain_noise,
            "accuracy_over_users": measured.accuracies.to_json(),
            "gain_over_users": measured.gains.to_json() if measured.gains else None,
        }

    def __rich__(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        from murmuration.reporting import over_users
        from murmuration.reporting.figures import points_of_error, share_text

        measured, figures = self.measured, self.to_json()
        assert measured.personal is not None and measured.gain_error is not None
        gain = measured.personal - measured.accuracy
        helps = gain > 2.0 * measured.gain_error
        verdict = "" if helps else ": no gain shows, so the crowd's reward is as good"
        table = Table(show_header=False, box=None, pad_edge=False)
        for name, text in {
            "privacy": f"ε = {self.epsilon:g}, δ = 0, {self.adjacency}, for each user of the file",
            "before": f"{share_text(measured.accuracy)} by user with the crowd's reward",
            "after": f"{share_text(measured.personal)} with each user's own ({self.own}), "
            f"{100 * gain:+.1f} ± {points_of_error(measured.gain_error)} points{verdict}",
            "over users": over_users.tenths(figures["accuracy_over_users"]),
            "gains": over_users.gains(figures["gain_over_users"]),
            "written": f"{self.path}: {LEDGER}, {RESULT} and {PLOT}",
        }.items():
            table.add_row(name, Text(text))
        return table

    def __str__(self) -> str:
        from murmuration.reporting.live.tables import as_text

        return as_text(self)


def personalize(
    model: Run | str | os.PathLike[str],
    data: Source,
    epsilon: float,
    *,
    out: str | os.PathLike[str],
    step: float | None = None,
    adjacency: str = "add-remove",
    base: str = "",
    columns: str = "",
    format: str | None = None,
    on_bad_rows: Literal["refuse", "skip"] = "refuse",
    max_judgements: int | None = None,
    max_characters: int | None = None,
    scale: str | None = None,
    positive_from: str | None = None,
    no_prompt: bool | None = None,
    ids: str | None = None,
) -> Personalized:
    """Measure what users gain by rewards of their own, made of a trained model, with noise.

    Half of a user's judgements make the user's own reward, and the other half is predicted; then
    the other way round. The halves share no response. A user is one count in each of two
    histograms, and nothing else is told of them; the whole is (epsilon, 0)-DP.

        >>> from murmuration import personalize, population
        >>> result = personalize(
        ...     "runs/reward/model", population.test(), 400.0, out="personal", step=0.1
        ... )
        >>> bool(abs(result.measured.personal - result.measured.accuracy) < 0.2)
        True

    Args:
        model: A run with a linear reward, or its model's folder.
        data: Pairs that users judged, as of ``train``. Where these users were trained on, this
            epsilon is to be added to that of the run.
        epsilon: What the release may cost.
        out: A folder for ledger, figures and plot. A second release into it is refused.
        step: Step size of four epochs of SGD, from the crowd's reward, on a user's half. Left out,
            a model with tastes uses its basis, and others take 0.1.
        adjacency: Which data sets are neighbours: add-remove, zero-out or replace.
        base: The encoder that the model was made on, where it is not found by itself.
        columns: As of ``train``.
        format: As of ``train``.
        on_bad_rows: refuse the data, or skip the rows.
        max_judgements, max_characters, scale, positive_from, no_prompt, ids: As of ``train``.

    Returns:
        The figures.

    Raises:
        InputError: what cannot be used, and why; or there are too few users for the noise.
    """
    quiet_libraries()
    from murmuration.client.store import load_judged
    from murmuration.planning.plan import parse_adjacency
    from murmuration.preference.data.schema import Schema
    from murmuration.preference.data.sources import absolute, first_line
    from murmuration.preference.language.likelihood import load_scorer
    from murmuration.privacy.accounting.events import PureDp
    from murmuration.privacy.durable_files import replace_file
    from murmuration.privacy.mechanisms.tally import Tally, TallyRelease

    neighbours = parse_adjacency(adjacency)
    if neighbours.value == "replace-labels":
        raise InputError("--adjacency replace-labels: whether a user has two halves is told, too")
    if step is not None and not 0.0 < step < float("inf"):
        raise InputError(f"--step must be positive, got {step:g}")
    try:
        release = TallyRelease(PureDp(epsilon), neighbours, Tally(personal=True), _COVERS)
    except ValueError as error:
        raise InputError(f"--epsilon {epsilon:g}: {error}") from None
    reward: Any = load_scorer(model_folder(model), base)
    if hasattr(reward, "as_features"):  # a language model's
        reward = _over_rows(reward, step)
    if getattr(reward, "model", "") != "btl" or not hasattr(reward, "tastes_VD"):
        raise InputError("personalize is for a linear reward of pairs: --features, --model btl")
    options = {
        "format": format,
        "max-judgements": max_judgements,
        "max-characters": max_characters,
        "scale": scale,
        "positive-from": positive_from,
        "no-prompt": no_prompt,
        "ids": ids,
    }
    schema = Schema.of({name: value for name, value in options.items() if value is not None})
    with located_rows(data) as source:
        judgements = load_judged(absolute(source), columns, on_bad_rows, schema)
    own, makes = _own_of(reward, step)
    sum_F = _sums(judgements, reward, own, release.tally)
    folder = Path(out)
    try:
        noisy_F = _released(release, sum_F, folder)
    except OSError as error:
        raise InputError(f"--out {folder} cannot be written: {first_line(error)}") from None
    measured = release.tally.read(noisy_F, release.std)
    if measured is None:
        raise InputError(
            f"too few users for the noise of --epsilon {epsilon:g}, which is spent: {folder} has "
            "the ledger. murmuration plan --heldout with --tastes says how much noise there is"
        )
    result = Personalized(folder, epsilon, neighbours.value, makes, measured)
    _write(result, replace_file)
    return result


def _over_rows(reward: SavedReward, step: float | None) -> RewardModel:
    """Return a language model's reward and tastes as linear ones of what its head's rows say."""
    import numpy as np

    from murmuration.preference.reward import RewardModel

    if step is not None or not len(reward.tastes_VH):
        raise InputError(
            "a language model's rewards of one's own come from its basis: leave out --step, and "
            "train it with --tastes 2 or more"
        )
    basis_KK = np.eye(1 + len(reward.tastes_VH))
    return RewardModel(basis_KK[0], reward.as_features, reward.model, tastes_VD=basis_KK[1:])


def _own_of(reward: RewardModel, step: float | None) -> tuple[Own, str]:
    """Return what makes a user's own reward of the crowd's, and its name."""
    import numpy as np

    from murmuration.preference.linear.fine_tuning import DEFAULT_STEP, fine_tuned
    from murmuration.preference.linear.tastes import own_weights

    theta_D = reward.theta_D
    if step is None and len(reward.tastes_VD):
        basis_KD = np.concatenate([theta_D[None], reward.tastes_VD])
        return (lambda x, y: theta_D + own_weights(x, y, basis_KD) @ basis_KD[1:]), "basis"
    length = step or DEFAULT_STEP
    return (lambda x, y: fine_tuned(theta_D, x, y, length)), f"local steps of {length:g}"


def _sums(judgements: Judgements, reward: RewardModel, own: Own, tally: Any) -> np.ndarray:
    """Return the exact sums over users, which only noise may leave."""
    import numpy as np

    from murmuration.preference.linear.examples import pairs_with_texts
    from murmuration.preference.linear.half_predictions import right_by_halves
    from murmuration.preference.linear.tastes import halves

    if judgements.kind != "pairs":
        raise InputError(f"personalize is for pairs, not for {judgements.kind}")
    pairs, text_JK = pairs_with_texts(judgements, reward.features)
    half_J = halves(text_JK, judgements.start_U)
    before_U = right_by_halves(pairs, half_J, lambda x, y: reward.theta_D)
    after_U = right_by_halves(pairs, half_J, own)
    sum_F = np.zeros(tally.figures)
    for before, after in zip(before_U.tolist(), after_U.tolist(), strict=True):
        sum_F += tally.contribution(before, personal=after)
    return sum_F


def _released(release: Any, sum_F: np.ndarray, folder: Path) -> np.ndarray:
    """Return the sums with noise of the operating system, charged before it exists."""
    import numpy as np

    from murmuration.privacy.accounting.ledger import BudgetExceeded, Ledger, LedgerError
    from murmuration.privacy.mechanisms.randomness import Randomness

    folder.mkdir(parents=True, exist_ok=True)
    terms = {"adjacency": release.adjacency, "delta": _DELTA, "budget": release.event.epsilon}
    try:
        with Ledger(folder / LEDGER, **terms) as ledger:
            noisy_F = release.release(sum_F, round_=1, ledger=ledger, source=Randomness(None))
    except BudgetExceeded:
        raise InputError(
            f"--out {folder}: what it may cost is spent; choose another --out"
        ) from None
    except LedgerError as error:
        raise InputError(str(error)) from None
    return np.array(noisy_F, dtype=np.float64)


def _write(result: Personalized, replace_file: Any) -> None:

    from murmuration.reporting import plots

    figures = result.to_json()
    replace_file(result.path / RESULT, (strict_json(figures, indent=2) + "\n").encode())
    replace_file(result.path / PLOT, plots.users_plot(figures, []))
