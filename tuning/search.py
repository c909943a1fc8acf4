"""A search: the candidates of ``privacy.selection``, and the best of them.

    config.json     the settings, the grid and how the search stops: all of it public
    ledger.jsonl    one charge, on disk before the first candidate begins
    model/, result.json, report.html    of the winner, once the search has ended
    private/search.json    the number of candidates and their settings: drawn once, secret, removed
    private/candidates/    the runs that go on and the best one so far: removed

Nothing that is shown or kept reveals a candidate that was not chosen, nor the number of candidates.
A candidate that is interrupted starts again when the search is resumed, with fresh randomness: its
result was never seen. What was drawn for the search is not drawn again. The order in which
candidates end decides nothing: the best is that of the highest score, and of equal scores that of
the highest tag. Nor does a failed candidate affect others: it is the worst.
"""

import math
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from murmuration.client.store import load
from murmuration.preference.bases import base_of
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.judgements import OnBadRows
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.ledger import Ledger, LedgerError, read_account
from murmuration.privacy.accounting.terms import Caveat, RunTerms, Trust, Unit, new_run_id
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.disclosure import Disclosure
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.selection.random_stopping import CandidateCost, RandomStopping
from murmuration.privacy.selection.stopping_time import StoppingTime
from murmuration.server.record.result import Result
from murmuration.server.record.run_files import read_json
from murmuration.server.record.run_folder import RunFolder
from murmuration.sims.runtimes.execute import check_data
from murmuration.sims.runtimes.sweep import Failed
from murmuration.strategies import registry
from murmuration.strategies.config import RunConfig
from murmuration.strategies.noise.choice import choose_noise
from murmuration.strategies.settings.declaration import Scalar
from murmuration.strategies.settings.own import Sampled
from murmuration.strategies.uls import sampled_users
from murmuration.tuning.calibration import CalibratedSearch, calibrated
from murmuration.tuning.candidates import CandidateFailed, RunAll
from murmuration.tuning.winner import release

#: Total variation distance that discrete noise of a candidate's rounds may have from the ideal.
_DISCRETE = 1e-10
_STATE, _SEED, _CANDIDATES = "search.json", "seed.json", "candidates"


@dataclass(frozen=True)
class Search:
    """The settings of a search; all of it public except a seed.

    Attributes:
        configs: for each point of the grid a run with the whole budget, without a folder.
        points: the settings that differ between them.
        stopping: the distribution of the number of candidates.
    """

    configs: Sequence[RunConfig]
    points: Sequence[Mapping[str, Scalar]]
    stopping: StoppingTime

    def __post_init__(self) -> None:
        for config in self.configs:
            check(config)

    @property
    def base(self) -> RunConfig:
        """A config with the settings that all candidates share."""
        return self.configs[0]

    def candidate(self, point: int, epsilon: float, out: Path, seed: int = -1) -> RunConfig:
        """The run of a point of the grid that may cost ``epsilon`` by itself."""
        config = self.configs[point]
        held = min(config.heldout_epsilon, 0.9 * epsilon)
        return replace(config, epsilon=epsilon, heldout_epsilon=held, out=str(out), seed=seed)


def check(config: RunConfig) -> None:
    """InputError for a run that no search can have as a candidate."""
    strategy = registry.named(config.strategy)
    usable = [n for n, one in registry.strategies().items() if one.solve is sampled_users]
    if strategy.solve is not sampled_users:
        raise InputError(
            f"--strategy {config.strategy} cannot be searched: a candidate's rounds must be "
            f"sampled Gaussian sums; use {' or '.join(sorted(usable))}"
        )
    if Adjacency(config.adjacency).vectors_changed != 1:
        raise InputError(
            f"--adjacency {config.adjacency} cannot be searched: candidates are accounted for "
            "where a user comes or goes; use add-remove or zero-out"
        )
    if config.task != "reward" or config.base:
        raise InputError("a search is of reward models on features: leave out --task and --base")
    if not (config.test or config.heldout):
        raise InputError(
            "a search needs a score: hold out users (--heldout), or name a public --test"
        )
    if config.of(Sampled).sampling != "poisson":
        raise InputError("a search is with --sampling poisson: no bound is here for others")
    if config.noise == "distributed":
        raise InputError("a search is without --noise distributed")


def planned(config: RunConfig, registered: int) -> CandidateCost:
    """The privacy cost of a candidate, before any data are read."""
    config = config.resolved(registered)
    probability = config.cohort / config.trained_on(registered)
    if probability > 1.0:
        raise InputError(f"--cohort {config.cohort} is more than there are users to train on")
    noise = accountant.noise_multiplier_for(
        config.epsilon,
        delta=config.delta,
        probability=probability,
        rounds=config.rounds,
        adjacency=Adjacency(config.adjacency),
        hold_out=config.hold_out,
    )
    exact = config.noise == "gaussian" or config.seed >= 0
    coins = config.hold_out
    return CandidateCost(
        probability=probability,
        noise_multiplier=noise,
        rounds=config.rounds,
        share=coins.share if coins else 0.0,
        heldout_epsilon=coins.epsilon if coins else 0.0,
        distance=0.0 if exact else _DISCRETE,
    )


def users_of(config: RunConfig) -> int:
    """The number of users in the data of a search; InputError for data that no candidate can
    use.
    """
    bad_rows: OnBadRows = "skip" if config.on_bad_rows == "skip" else "refuse"
    data = load(config.data, config.columns, bad_rows, config.task, config.schema)
    check_data(config, data)
    return len(data.user_ids)


def calibrate(search: Search, registered: int) -> CalibratedSearch:
    """The search with the least noise in candidates whose cost is within its budget."""
    base = search.base.resolved(registered)

    def costs(epsilon: float) -> set[CandidateCost]:
        configs = [
            search.candidate(place, epsilon, Path("-"), base.seed)
            for place in range(len(search.configs))
        ]
        return {planned(config, registered) for config in configs}

    try:
        return calibrated(
            base.epsilon,
            delta=base.delta,
            adjacency=Adjacency(base.adjacency),
            stopping=search.stopping,
            candidates=costs,
        )
    except InputError:
        raise
    except ValueError as error:
        raise InputError(str(error)) from None


def composed_epsilon(search: Search, epsilon: float, registered: int) -> float:
    """The cost of running every point of the grid once and seeing all of them."""
    base = search.base.resolved(registered)
    runs = [
        planned(search.candidate(place, epsilon, Path("-"), base.seed), registered).charges.items()
        for place in range(len(search.configs))
    ]
    return accountant.epsilon(*runs, adjacency=Adjacency(base.adjacency), delta=base.delta)


def run_search(
    search: Search, out: Path, run_all: RunAll, *, beside: Mapping[str, Any], resume: bool = False
) -> dict[str, Any]:
    """Run a search to its end, or what is left of it; its result.

    Args:
        search: what is searched.
        out: the folder.
        run_all: runs candidates.
        beside: more of ``config.json``: what a search that is resumed needs.
        resume: whether the search in ``out`` is continued.

    Raises:
        InputError: settings, data or a folder that cannot be used; one line.
        CandidateFailed: every candidate came to nothing; nothing is released.
    """
    former = begun_with(out)["search"] if resume else None
    registered = users_of(search.base)
    try:
        caveats = caveats_of(search.configs)
    except ValueError as error:  # of noise that a point of the grid cannot have
        raise InputError(str(error)) from None
    figures = former if former is not None else _figures(search, registered)
    with RunFolder(out, resume=resume, check_same=lambda path: None) as folder:
        if (result := Result.read(folder.path)) is not None:
            _forget(folder)
            return result.to_json()
        if folder.is_new:
            folder.write_private(_SEED, {"seed": search.base.seed})
            folder.write_json("config.json", Disclosure.public({**beside, "search": figures}))
        return _searched(
            search, folder, run_all, figures=figures, registered=registered, caveats=caveats
        )


def caveats_of(configs: Sequence[RunConfig]) -> frozenset[str]:
    """The union of the caveats of all points of a grid: which points were drawn is secret, and
    losing scores also decide what is released.
    """
    seeded = configs[0].seed >= 0
    noises = (
        choose_noise(
            config,
            registry.named(config.strategy),
            base_of(registry.base_config(config), weights=False).dimension,
            seeded=seeded,
            nodes=1,
        )
        for config in configs
    )
    caveats = {
        Caveat.SEEDED: seeded,
        Caveat.SHARED_PASSES: any(config.shared_passes for config in configs),
        Caveat.CHOSEN_FROM_DATA: any(config.chosen_from_data for config in configs),
        Caveat.FLOATING_POINT: any(noise.warning for noise in noises),
        Caveat.EXACT_USERS: any(config.exact_users for config in configs),
        Caveat.ROWS_ARE_USERS: any(config.one_user_per_row for config in configs),
    }
    return frozenset(name.value for name, is_so in caveats.items() if is_so)


def _figures(search: Search, registered: int) -> dict[str, Any]:
    """The public figures computed once, before a search begins."""
    calibrated_search = calibrate(search, registered)
    return {
        "settings": len(search.configs),
        "expected_runs": search.stopping.mean,
        "eta": search.stopping.eta,
        "gamma": search.stopping.gamma,
        "candidates": [asdict(one) for one in calibrated_search.event.candidates],
        "epsilon": calibrated_search.epsilon,
        "candidate_epsilon": calibrated_search.candidate_epsilon,
        "every_setting_once_epsilon": composed_epsilon(
            search, calibrated_search.candidate_epsilon, registered
        ),
    }


def _searched(
    search: Search,
    folder: RunFolder,
    run_all: RunAll,
    *,
    figures: Mapping[str, Any],
    registered: int,
    caveats: frozenset[str],
) -> dict[str, Any]:
    base = search.base.resolved(registered)
    event = RandomStopping(figures["eta"], figures["gamma"], tuple(figures["candidates"]))
    epsilon = float(figures["candidate_epsilon"])
    drawn = _drawn(search, folder, base.seed)
    terms = RunTerms(
        run=drawn["run"],
        unit=Unit.ROW if base.one_user_per_row else Unit.USER,
        trust=Trust.SERVER_OF_SUMS if base.secure_aggregation else Trust.SERVER,
        population=base.population,
        caveats=caveats,
    )
    try:
        ledger = Ledger(
            folder.path / "ledger.jsonl",
            adjacency=Adjacency(base.adjacency),
            delta=base.delta,
            budget=base.epsilon,
            begun=drawn["charged"],
            terms=terms,
        )
    except LedgerError as error:
        raise InputError(str(error)) from None
    with ledger:
        if not ledger.spent():
            ledger.charge(event, round_=0, covers="the best of a search")
        if set(ledger.spent()) != {event}:
            raise InputError(f"{ledger.path} was charged something else than this search")
        _keep(folder, {**drawn, "charged": True})
        there = folder.private / _CANDIDATES
        there.mkdir(exist_ok=True)
        _remove_all_but(there, drawn["best"])
        left = [place for place in range(len(drawn["points"])) if place not in drawn["done"]]
        points, seeds = drawn["points"], drawn["seeds"]
        configs = (search.candidate(points[each], epsilon, there, seeds[each]) for each in left)
        why = "it failed before the search was resumed"
        with closing(run_all(configs)) as ended:
            for place, outcome in ended:
                if isinstance(outcome, dict):
                    _take(folder, event, left[place], outcome)
                    continue
                state, why = _state(folder), outcome.why if isinstance(outcome, Failed) else outcome
                _keep(folder, {**state, "done": [*state["done"], left[place]]})
        best = _state(folder)["best"]
        if best is None:
            raise CandidateFailed(why)
        point = drawn["points"][best["place"]]
        config, chosen = search.configs[point].resolved(registered), search.points[point]
        candidate = there / best["folder"]
        public = {name: value for name, value in figures.items() if name != "candidates"}
        result = release(folder, candidate, ledger, config, {**public, "chosen": dict(chosen)})
    _forget(folder)
    return result


def _take(folder: RunFolder, event: RandomStopping, place: int, outcome: Mapping[str, Any]) -> None:
    """Keep a candidate that has ended if it is the best so far, and remove the other."""
    state, there, out = _state(folder), folder.private / _CANDIDATES, Path(outcome["out"])
    spent = CandidateCost.of_charges(read_account(out / "ledger.jsonl")[0].spent)
    if not any(spent.within(cost) for cost in event.candidates):
        raise InputError(
            "a candidate was charged more than was planned for it: nothing is released; begin "
            "again with another --out"
        )
    accuracy = outcome.get("heldout_accuracy")
    score = -math.inf if accuracy is None else float(accuracy)
    best, loser = state["best"], {"folder": str(out.relative_to(there))}
    if best is None or (score, state["tags"][place]) > _rank(state, best):
        best, loser = {**loser, "place": place, "score": repr(score)}, best
    _keep(folder, {**state, "done": [*state["done"], place], "best": best})
    if loser is not None:
        shutil.rmtree(_within(there, loser))


def _rank(state: Mapping[str, Any], best: Mapping[str, Any]) -> tuple[float, str]:
    return float(best["score"]), state["tags"][best["place"]]


def _drawn(search: Search, folder: RunFolder, seed: int) -> dict[str, Any]:
    """The random draws of a search, made once: by the operating system if there is no seed."""
    if (folder.private / _STATE).exists():
        return _state(folder)
    if (folder.path / "ledger.jsonl").exists():
        raise InputError(
            f"{folder.private / _STATE} is gone: the search cannot go on, and what was drawn for "
            "it is not drawn again; begin again with another --out"
        )
    source = Randomness(seed if seed >= 0 else None)
    generator = source.stream("candidates of a search")
    runs = search.stopping.draw(generator)
    points = generator.integers(len(search.configs), size=runs).tolist()
    tags = [secrets.token_hex(16) if seed < 0 else source.key("tag", n).hex() for n in range(runs)]
    seeds = [
        int.from_bytes(source.key("candidate", n)[:6], "little") if seed >= 0 else -1
        for n in range(runs)
    ]
    state = {"points": points, "tags": tags, "seeds": seeds, "done": [], "best": None}
    _keep(folder, {**state, "run": new_run_id(), "charged": False})
    return _state(folder)


def _state(folder: RunFolder) -> dict[str, Any]:
    names = ("points", "tags", "seeds", "done", "best", "run", "charged")
    return read_json(folder.private / _STATE, *names)


def _keep(folder: RunFolder, state: Mapping[str, Any]) -> None:
    folder.write_private(_STATE, state)


def _within(there: Path, candidate: Mapping[str, Any]) -> Path:
    """The folder that holds one candidate's run alone."""
    return there / Path(candidate["folder"]).parts[0]


def _remove_all_but(there: Path, best: Mapping[str, Any] | None) -> None:
    """Remove what is left of candidates, those that were interrupted too."""
    for other in there.iterdir():
        if best is not None and other == _within(there, best):
            continue
        if other.is_dir():
            shutil.rmtree(other)
        else:
            other.unlink()


def _forget(folder: RunFolder) -> None:
    """Remove everything about candidates; the random draws last, so that no candidate is left
    without them.

    Files have the time when the search began, and not when it ended: its duration would reveal the
    number of candidates.
    """
    if (folder.private / _CANDIDATES).exists():
        shutil.rmtree(folder.private / _CANDIDATES)
    for name in (_SEED, _STATE):
        (folder.private / name).unlink(missing_ok=True)
    begun = (folder.path / "config.json").stat().st_mtime
    for path in (*folder.path.rglob("*"), folder.path):
        os.utime(path, (begun, begun))


def begun_with(folder: Path) -> dict[str, Any]:
    """The settings with which the search in a folder was begun.

    Raises:
        InputError: there is none, or its file is damaged.
    """
    written = read_json(folder / "config.json")
    if "search" not in written:
        raise InputError(f"--resume: there is no search in {folder}")
    return written
