"""Two runs on neighbouring populations, watched at every message and at every release.

A population is what stands on nodes: for each node a file of raw lines. ``watch`` runs one through
the whole system, from bytes on nodes to files that are written, with every noisy release replaced
by its noise alone; so two runs with one seed go through the same models and ask the same things,
and whatever differs between them got there past the noise. What was seen:

- who was asked in each message, by name,
- what a node answers when it is asked about one user alone, for each of them, at each model,
- the exact values that each mechanism was given, and by how much one user may move them,
- every file that is written for release.

Legend: D dimensions, S users who are there.
"""

import itertools
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from neighbours import CHANGED, DECLARED, GONE, USERS, Change, after, everybody, housed

import murmuration.client.hosting
import murmuration.client.store
import murmuration.privacy.accounting.ledger
import murmuration.server.record.run_directory
import murmuration.server.run
import murmuration.server.training
import murmuration.strategies.aup.published
import murmuration.strategies.els
from murmuration.client.app import app as client_app
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.mechanisms.above_threshold import OpenThreshold
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum, JointSum
from murmuration.privacy.mechanisms.randomized_response import RandomizedResponse
from murmuration.privacy.mechanisms.randomness import Randomness, user_key
from murmuration.privacy.mechanisms.tally import STEPS, TallyRelease
from murmuration.research.strategies import filtered_mean
from murmuration.research.strategies.choice.exponential_mechanism import STEPS as CHOICE_STEPS
from murmuration.research.strategies.choice.exponential_mechanism import ExponentialMechanism
from murmuration.research.strategies.filtered_mean import FilteredMean
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies import registry
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol import messages

#: Per node: the lines of its file, or files of a folder by name.
Population = Mapping[int, list[bytes] | dict[str, bytes]]


@dataclass(frozen=True)
class Given:
    """The exact values that a release was given.

    ``leaves`` is how far, in ℓ2 (or ℓ``power``), they may move where one user comes or goes,
    ``changes`` where what a user has is replaced by anything; None where nothing is promised.
    """

    values: np.ndarray
    leaves: float | None
    changes: float | None
    power: int = 2

    def further_than(self, other: "Given", bound: float) -> bool:
        """Whether the two are further apart, in exact arithmetic."""
        pairs = zip(self.values.ravel().tolist(), other.values.ravel().tolist(), strict=True)
        apart = [abs(Fraction(a) - Fraction(b)) ** self.power for a, b in pairs if a != b]
        return sum(apart, Fraction(0)) > Fraction(bound) ** self.power


@dataclass
class Seen:
    """What one run showed, to nodes, to mechanisms and to everybody."""

    asked: dict[tuple, set[str]] = field(default_factory=dict)
    alone: dict[tuple, dict[str, np.ndarray]] = field(default_factory=dict)
    given: dict[tuple, Given] = field(default_factory=dict)
    truths: dict[int, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    public: dict[str, object] = field(default_factory=dict)
    refused: str = ""


class WatchedGrid(LocalGrid):
    """Nodes with files of their own; notes who is asked, and asks for each of them alone."""

    def __init__(self, config: RunConfig, node_configs: list[dict], names: list[str]) -> None:
        super().__init__(client_app, len(node_configs), config.to_run_config(), node_configs)
        self.seen, self._names = Seen(), names
        self.probes = True
        #: Files that nodes read from the first registry on that is asked after a round, or, where
        #: the change is unannounced, from the first work on.
        self.later: dict[int, str] = {}
        self.unannounced = False

    def _answer(self, message: Message) -> Message:
        kind, node = message.metadata.message_type, message.metadata.dst_node_id
        refreshed = kind == "query.registry" and self.seen.asked
        if node in self.later and (kind == "train" if self.unannounced else refreshed):
            self._contexts[node].node_config["data"] = self.later[node]
        reply = super()._answer(message)
        if reply.has_error():
            self.seen.errors.append(f"node {node}, {kind}: {reply.error.reason}")
            return reply
        if "cohort" not in message.content.config_records:
            return reply
        about = messages.UserSelection.of(message.content)
        known = {user_key(name, about.salt): name for name in self._names}
        turn = kind, message.metadata.group_id
        asked = [known.get(name, "somebody") for name in about.names_S.tolist()]
        self.seen.asked.setdefault(turn, set()).update(asked)
        if kind in ("train", "evaluate") and self.probes:
            for place, name in enumerate(asked):
                one = messages.UserSelection(about.salt, about.names_S[place : place + 1])
                self.seen.alone[*turn, name] = self._alone(message, one)
        return reply

    def _alone(self, message: Message, one: messages.UserSelection) -> dict[str, np.ndarray]:
        """What the node says when it is asked about one of its users alone."""
        about, content = message.metadata, message.content
        content = messages.work_request(
            content.array_records["model"],
            dict(content.config_records["parameters"]),  # type: ignore[arg-type]
            one,
        )
        alone = self.create_message(content, about.message_type, about.dst_node_id, "alone")
        reply = super()._answer(alone)
        if reply.has_error():
            self.seen.errors.append(f"one user of node {about.dst_node_id}: {reply.error.reason}")
            return {}
        parameters: Any = message.content.config_records["parameters"]
        half = registry.node_halves().get(str(parameters.get("strategy")))
        steps = half.steps(partial(messages.number, parameters)) if half else {}
        said = {
            n: messages.in_units(a.numpy(), steps.get(n, 1.0))
            for record in reply.content.array_records.values()
            for n, a in record.items()
        }
        for record in reply.content.metric_records.values():
            said |= {name: np.array(value) for name, value in record.items()}
        return said


class Watch:
    """Runs populations in a folder; each run is another subfolder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count()

    def run(
        self,
        config: dict,
        population: Population,
        names: list[str],
        *,
        later: Population | None = None,
        unannounced: bool = False,
    ) -> Seen:
        """One run of these settings over these nodes; from the first refresh on ``later``, or, if
        ``unannounced``, as soon as everybody is registered.
        """
        out = self.folder / f"run-{next(self._numbers)}"
        config = {**config, "out": str(out / "out")}
        refresh = config.pop("refresh", 0)  # rounds after which nodes are asked again
        settings = RunConfig.from_run_config(config)
        node_configs = [
            {
                "task": settings.task,
                "kind": settings.kind,
                "responses": settings.responses,
                "max-judgements": settings.max_judgements,
                "data": self._data(out / f"{node}", population[node]),
                "state": str(out / f"{node}.state"),
                "public-items": True,
            }
            for node in sorted(population)
        ]
        if settings.strategy == "local-label":
            terms = {"label-epsilon": settings.epsilon}
            node_configs = [{**own, **terms} for own in node_configs]
        grid = WatchedGrid(settings, node_configs, names)
        grid.probes = not settings.secure_aggregation
        grid.unannounced = unannounced
        if later is not None:
            grid.later = {
                place: self._data(out / f"{node}-later", later[node])
                for place, node in enumerate(sorted(later), start=1)
            }
        seen = grid.seen
        with pytest.MonkeyPatch.context() as patched:
            _noise_alone(patched, seen)
            _coarsely(patched)
            if refresh:
                patched.setattr(RunConfig, "comes_and_goes", True)
                patched.setattr(murmuration.server.training, "REFRESH", refresh)
            try:
                murmuration.server.run.run_training(settings, grid)
            except InputError as error:
                seen.refused = str(error)
        murmuration.client.store._kept.clear()
        if (out / "out").exists():
            seen.public = public(out / "out")
        return seen

    def test(self, kind: str) -> str:
        """A file with public judgements of a kind, of others."""
        path = self.folder / f"{kind}.jsonl"
        if not path.exists():
            mine = everybody(kind, 99, 6).values()
            path.write_bytes(b"".join(line + b"\n" for lines in mine for line in lines))
        return str(path)

    @staticmethod
    def _data(place: Path, lines: list[bytes] | dict[str, bytes]) -> str:
        """What a node-config names: a file, or a folder."""
        files = lines
        if isinstance(lines, list):
            place = place.with_suffix(".jsonl")
            files = {place.name: b"".join(line + b"\n" for line in lines)}
        folder = place if lines is files else place.parent
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return str(place)


class _StoppedClock:
    @staticmethod
    def monotonic() -> float:
        return 0.0

    @staticmethod
    def now(zone: tzinfo) -> datetime:
        return datetime.fromtimestamp(0, zone)


def stop_clocks(patched: pytest.MonkeyPatch) -> None:
    """Time does not pass for the server and in its ledger, whose hashes cover it; and all runs have
    one identity, and all charges one nonce, which are drawn from the operating system whatever the
    data."""
    patched.setattr(murmuration.server.record.run_directory.RunDirectory, "run_id", "0" * 32)
    patched.setattr(murmuration.server.training, "time", _StoppedClock)
    patched.setattr(murmuration.privacy.accounting.ledger, "datetime", _StoppedClock)
    patched.setattr(murmuration.privacy.accounting.ledger, "_nonce", lambda: "0" * 16)


def public(folder: Path, data: str = "") -> dict[str, object]:
    """Every file outside private/, without the names of the folder and of the data file.

    And without the settings' keyed hash, whose keys are random in every run.
    """
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or name.startswith("private/"):
            continue
        content = path.read_bytes()
        if path.suffix in (".png", ".safetensors"):
            found[name] = content
        else:
            text = content.decode().replace(str(folder), "RUN")
            if name in ("config.json", "released.json"):
                text = re.sub(r'"check": "[0-9a-f]{64}"', '"check": "CHECK"', text)
            found[name] = text.replace(data or "DATA", "DATA")
    return found


def _noise_alone(patched: pytest.MonkeyPatch, seen: Seen) -> None:
    """Mechanisms note what they are given, and release what they would of nobody.

    Draws of nodes come from a seed, as in a simulation: the same for the same user.
    """
    patched.setattr(murmuration.client.hosting, "source_for", lambda context: Randomness(7))
    stop_clocks(patched)
    patched.setattr(os, "fsync", lambda descriptor: None)  # nothing here is about lost power

    def note(name: tuple, values: np.ndarray, leaves: float | None, swapped: float | None) -> None:
        seen.given[name] = Given(np.array(values, dtype=np.float64), leaves, swapped)

    def summed(kind: type, bound: Callable[..., float]) -> None:
        release = kind.release

        def call(self, sum_D, *, round_, covers, **more):
            note((round_, covers), sum_D, bound(self), 2 * bound(self))
            nothing_D = np.zeros_like(sum_D)
            return release(self, nothing_D, round_=round_, covers=covers, **more)

        patched.setattr(kind, "release", call)

    # Of examples a user has several.
    summed(GaussianSum, lambda self: self.clip.norm * getattr(self.sampler, "group_size", 1))

    choose = ExponentialMechanism.choose

    def call_choose(self, sum_P, **more):
        bound, turn = float(self.choices - 1), (more["round_"], more["covers"])
        seen.given[turn] = Given(sum_P / CHOICE_STEPS, bound, 2 * bound, power=1)
        return choose(self, np.zeros_like(sum_P), **more)

    patched.setattr(ExponentialMechanism, "choose", call_choose)

    joint, filtered, ask = JointSum.release, FilteredMean.release, OpenThreshold.ask

    def call_joint(self, sum_D, count, *, round_, covers, **more):
        note((round_, covers), sum_D, self.clip.norm, 2 * self.clip.norm)
        note((round_, covers, "count"), np.array([count]), 0.5, 1.0)
        return joint(self, np.zeros_like(sum_D), 0.0, round_=round_, covers=covers, **more)

    def call_filtered(self, rows_SD, *, round_, covers, **more):
        near_SS = filtered_mean.near(rows_SD, self.radius)
        weights_S = filtered_mean.majority_weights(near_SS.sum(axis=1))
        weight, mean_D = filtered_mean.weighted_mean(rows_SD, weights_S)
        # Floating point beside the proof: sums of a few dozen weights.
        slack = 1e-9
        note((round_, covers, "weight"), np.array([weight]), 2 + slack, 4 + slack)
        if weight >= self.least_weight:  # of others no mean is released
            moves = filtered_mean.mean_movement(self.radius, self.least_weight) * (1 + slack)
            note((round_, covers, "mean"), mean_D, moves, 2 * moves)
        nobody_SD = np.zeros((30, rows_SD.shape[1]))
        return filtered(self, nobody_SD, round_=round_, covers=covers, **more)

    def call_ask(self, value, index):
        published = "concentration" in self._name  # of a sensitivity that nobody proved
        bound = None if published else self.mechanism.sensitivity
        note((index, self._name), np.array([value]), bound, bound)
        return ask(self, 2 * self.mechanism.threshold, index)

    patched.setattr(JointSum, "release", call_joint)
    patched.setattr(FilteredMean, "release", call_filtered)
    patched.setattr(OpenThreshold, "ask", call_ask)

    noisy, median = (
        murmuration.strategies.aup.published.noisy_mean,
        murmuration.strategies.els.release_median,
    )

    def call_noisy(mean_D, *others, **more):
        note((more["round_"], "published mean"), mean_D, None, None)
        return noisy(np.zeros_like(mean_D), *others, **more)

    def call_median(users_J, *others, **more):
        note((0, "histogram"), users_J, 1.0, math.sqrt(2.0))
        return median(np.ones_like(users_J), *others, **more)

    patched.setattr(murmuration.strategies.aup.published, "noisy_mean", call_noisy)
    patched.setattr(murmuration.strategies.els, "release_median", call_median)

    held_out = TallyRelease.release

    def call_held_out(self, sum_F, *, round_, **more):
        seen.given[round_, "held out"] = Given(np.array(sum_F), STEPS, 2 * STEPS, power=1)
        # As of a crowd: of nobody there would be nothing to say.
        return held_out(self, np.full_like(sum_F, 100.0 * STEPS), round_=round_, **more)

    patched.setattr(TallyRelease, "release", call_held_out)

    answer = RandomizedResponse.answer

    def call_answer(self, truth_R, words_R):
        seen.truths.update(zip(words_R.tolist(), np.asarray(truth_R).tolist(), strict=True))
        return answer(self, np.zeros_like(truth_R), words_R)  # its coins alone

    patched.setattr(RandomizedResponse, "answer", call_answer)


def _coarsely(patched: pytest.MonkeyPatch) -> None:
    """What a plan costs is a function of public numbers: here it is enough to know it roughly."""
    exactly = accountant.composed_epsilon

    def roughly(*events, interval, **more):
        return exactly(*events, interval=max(interval, 0.05), **more)

    patched.setattr(accountant, "composed_epsilon", roughly)


def differences(
    before: Seen, after: Seen, changed: str, *, leaves: bool, labels: int = 0
) -> list[str]:
    """What of a change of one user shows where nothing may; empty if all is well.

    ``leaves``: the user came or went, or what they contribute is nothing in one of the runs.
    ``labels``: how many labels the changed user may tell, of which the truth may differ.
    """
    found = [f"a node failed: {error}" for error in after.errors]
    if after.refused:
        return [*found, f"the run was refused: {after.refused}"]
    for turn in sorted({*before.asked, *after.asked}):
        was, now = (seen.asked.get(turn, set()) - {changed} for seen in (before, after))
        if was != now:
            found.append(f"{turn}: others were asked, {sorted(was ^ now)}")
    for turn in sorted({*before.alone, *after.alone}):
        if turn[-1] == changed:
            continue
        was, now = before.alone.get(turn, {}), after.alone.get(turn, {})
        same = was.keys() == now.keys() and all(np.array_equal(was[n], now[n]) for n in was)
        if not same:
            found.append(f"{turn}: somebody else's own contribution is another")
    for name in {*before.given, *after.given}:
        was, now = before.given.get(name), after.given.get(name)
        if was is None or now is None:
            if name[-1] != "mean":  # which there may be none of
                found.append(f"{name} was released in one run only")
            continue
        bound = was.leaves if leaves else was.changes
        if bound is not None and was.further_than(now, bound):
            moved = float(np.linalg.norm(was.values - now.values))
            found.append(f"{name} moved by {moved:.9g}, more than {bound:.9g}")
    others = {word for word in before.truths if before.truths[word] != after.truths.get(word)}
    if len(others) > labels or before.truths.keys() != after.truths.keys():
        found.append(f"{len(others)} labels differ, of {labels} that may")
    if before.public.keys() != after.public.keys():
        found.append(f"other files were written: {sorted({*before.public} ^ {*after.public})}")
    for file in before.public.keys() & after.public.keys():
        if before.public[file] != after.public[file]:
            found.append(f"{file} differs")
    return found


def assert_none(found: list[str]) -> None:
    """AssertionError that says what was found; pytest's own would print whole runs."""
    if found:
        raise AssertionError("\n".join(found))


def more_than_nothing(gone: Seen, now: Seen) -> list[str]:
    """Which values differ from those without the user, by more than sums in another order do."""
    return [
        f"{name}: a user who has nothing is counted"
        for name, given in gone.given.items()
        if name in now.given and given.further_than(now.given[name], 1e-9)
    ]


def added_up(seen: Seen) -> list[str]:
    """Where a sum is not that of users who were asked alone, to the last step of its grid."""
    found = []
    for name, given in seen.given.items():
        turn, held_out = ("train", str(name[0])), name[-1] == "held out"
        which = {"count": "within", "beside": "within"}.get(name[-1], "sum")
        if held_out:
            turn, which = ("evaluate",), messages.TALLY
        parts = [said for asked, said in seen.alone.items() if asked[: len(turn)] == turn]
        if not parts or name[-1] in ("mean", "weight") or any(which not in said for said in parts):
            continue
        total = sum((said[which] for said in parts), np.zeros_like(parts[0][which]))
        if total.shape == given.values.shape and not np.array_equal(total, given.values):
            found.append(f"{name}: the sum is not that of its users asked alone")
    return found


#: Settings of all runs.
PLAIN = {"users": USERS, "cohort": 9, "rounds": 2, "epsilon": 8.0, "delta": 1e-3}
PLAIN |= {"seed": 5, "features": "hashing:17", "timeout": 60.0}


_SEEN: dict[tuple, Seen] = {}


def compare(
    watch: Watch,
    options: dict,
    change: Change,
    *,
    kind: str = "pairs",
    seed: int = 0,
    alone: bool = False,
    late: bool = False,
    unannounced: bool = False,
    labels: int = 0,
    fault: str = "",
) -> list[str]:
    """What of a change shows in runs with these options where it may not.

    Compared with the run before it, and with one in which the user is gone: what is not further
    than one contribution from that is not further than two from the other, but not the reverse.
    With ``late`` it comes after the first round, with ``unannounced`` between registration and it.
    ``labels`` as in ``differences``; ``fault`` names
    what was broken on purpose.
    """
    config = {**PLAIN, "test": watch.test(kind), **DECLARED.get(kind, {}), **options}
    lines = everybody(kind, seed, max(USERS, config["users"]))
    nodes = housed(lines, alone, seed)

    def seen(change: Change | None):
        changed = nodes if change is None else after(lines, change, alone, seed)
        start, later = (nodes, changed) if late or unannounced else (changed, None)
        return watch.run(config, start, list(lines), later=later, unannounced=unannounced)

    def once(change: Change | None):
        settings = json.dumps(config, sort_keys=True)
        key = (settings, kind, seed, alone, fault, late, unannounced, change)
        if key not in _SEEN:
            _SEEN[key] = seen(change)
        return _SEEN[key]

    before, now = once(None), seen(change)
    assert not before.refused, before.refused
    assert not before.errors, before.errors
    assert before.given or before.truths, "nothing was released, so nothing was tested"
    met = any(CHANGED in names for names in before.asked.values())
    assert met, "the user who changes was never asked, so nothing was tested"
    found = differences(before, now, CHANGED, leaves=change.nothing, labels=labels)
    if not labels:
        found += differences(once(GONE), now, CHANGED, leaves=True)
    if change.nothing:
        found += more_than_nothing(once(GONE), now)
    return found + added_up(before) + added_up(now)
