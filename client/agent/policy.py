"""The owner's policy: the limits on all answers of a node, whatever a server sends.

The owner's agent (``client.agent.agent``) looks here before it answers. A policy is a TOML file;
every rule has a default that allows nothing, or next to nothing. What a rule can really enforce
differs:

- really: which strategies, clip norm, group size, how many users a sum is over, whether their rows
  share passes, how many requests are answered in all, how often a round is, what may be evaluated,
  that nobody is both trained and measured on in one run (``HOLD_OUT``), with how many and with whom
  a sum under masks is made, which features are computed, what is learnt on them, and everything
  about randomized labels (their ε is spent on this machine);
- on the server's word: ``max_epsilon`` of the other strategies. Their noise is added by the server,
  and it draws who is sampled and who is held out. The agent computes what the *stated* plan costs,
  and every run's plan is kept in the user's own ledger; that the server keeps to it, nobody here
  can see.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import RecordDict

from murmuration.client import secure
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.feature_map import SCORER
from murmuration.preference.features.strengths import STRENGTHS
from murmuration.privacy.accounting.event import Event
from murmuration.privacy.accounting.grid_noise import DiscretizedGaussian
from murmuration.privacy.accounting.mixture import MixtureGaussian, PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.distributed import NodeNoise, NoisySum
from murmuration.privacy.plugins import brought
from murmuration.privacy.regular_files import read_regular
from murmuration.privacy.secure_aggregation.party import threshold
from murmuration.strategies import registry
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.node_texts import shortened
from murmuration.strategies.protocol.records import config_of
from murmuration.strategies.protocol.stated_plan import MOST_SHARE, PARAMETER, StatedPlan
from murmuration.strategies.settings.toml_text import parse_toml
from murmuration.strategies.spec import NodeHalf

#: Tasks (``preference.data.loading``) of nodes that host judgements.
_TASKS = ("reward", "sft", "policy")
#: Kinds of features that are what they are, without a path.
_UNNAMED = ("hashing", *brought("murmuration.public_lists"))
#: A rule that every policy has: what a plan with a hold-out costs rests on it.
HOLD_OUT = "hold_out"
_MOST_NGRAMS = 4
_MOST_LOCAL_STEPS = 1_000
_AGENT = re.compile(r"[0-9a-f]{64}")


class PolicyRefusal(InputError):
    """A request that the owner's policy does not allow; the message names the rule."""

    def __init__(self, rule: str, reason: str) -> None:
        # What was asked may be quoted.
        super().__init__(f"{messages.OWNER_REFUSES} ({rule}): {shortened(reason)}")
        self.rule = rule


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The rules of ``policy.toml``. InputError, naming the rule, for values that make no sense.

    Attributes:
        strategies: allowed ones, by the name of ``--strategy``; none by default.
        adjacency: what a stated guarantee must protect against.
        max_epsilon: ε at ``delta`` of all stated plans together, over the life of the node.
        delta: see ``max_epsilon``.
        max_clip: the longest that one user's part of an answer may be.
        min_users: the fewest of the owner's users that a sum may be over, under masks or not.
        max_group_size: the most judgements of a user in one round; 0: any number.
        max_rounds: requests to work that are answered in all, over the life of the node.
        max_repeats: how often the same round of a run is answered without masks (a crash repeats
            a round); under masks it is once.
        max_evaluations: answered requests for how often a model is right about users whom a run
            holds out, over the life of the node; its stated plan must pay for them.
        label_epsilon: the most for randomized labels, all of a user together;
            above 0 true labels take no part in anything else.
        label_delta: the most δ of randomized labels.
        public_items: whether prompts, responses and numbers of judgements are public.
        features: feature maps that may be computed: hashing, a kind that public lists describe
            (as items, for votes on them), or the path or name of an encoder.
        max_dimension: the most features of hashing and responses on a public list; a model has
            those that it has.
        tasks: what may be learnt on them: reward, sft (the words of responses, by a language
            model).
        shared_passes: whether rows of several users may share a language model's backward pass. A
            server that chooses the model for it has one user move another's vector by most of its
            length.
        secure_only: whether sums, of evaluations too, leave under the masks of secure aggregation
            only.
        min_parties: over at least so many nodes, of those whose sums arrived; 0: as many as the
            protocol wants.
        parties: whose, by the keys (hex) of their agents; empty: anybody's.
        extensions: losses, readers and events of other packages that may be imported here, by the
            names of their entry points; of their strategies ``strategies`` says that.
        honest_parties: if positive, sums leave only with noise that the nodes add, each agent its
            share, before the server sees anything; ``max_epsilon`` then bounds what the server
            itself can learn, if at least so many of those whose sums arrive (this one among them)
            add theirs. 0: it bounds what is published, if the server adds the noise it states.
    """

    strategies: tuple[str, ...] = ()
    adjacency: str = "zero-out"
    max_epsilon: float = 0.0
    delta: float = 1e-6
    max_clip: float = 0.0
    min_users: int = 0
    max_group_size: int = 0
    max_rounds: int = 0
    max_repeats: int = 2
    max_evaluations: int = 0
    label_epsilon: float = 0.0
    label_min_epsilon: float = 0.0
    label_delta: float = 0.0
    label_cap: int = 0
    public_items: bool = False
    features: tuple[str, ...] = ("hashing",)
    max_dimension: int = 100_000
    tasks: tuple[str, ...] = ("reward",)
    shared_passes: bool = False
    secure_only: bool = False
    min_parties: int = 0
    parties: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    honest_parties: int = 0

    def __post_init__(self) -> None:
        known = {*self.halves, *(registry.installed() - {*self.strategies})}
        unknown = [name for name in self.strategies if name not in known]
        kinds = {float: "a number, at least 0", int: "a whole number, at least 0"}
        numbers = [field for field in fields(self) if type(field.default) in kinds]
        checks = [
            (not unknown, "strategies", f"some of {', '.join(sorted(known))}"),
            (self.adjacency in set(Adjacency), "adjacency", f"one of {', '.join(Adjacency)}"),
            (set(self.tasks) <= {*_TASKS}, "tasks", f"some of {', '.join(_TASKS)}"),
            (0.0 < self.delta < 1.0, "delta", "between 0 and 1"),
            (self.label_delta < 1.0, "label_delta", "below 1"),
            (
                self.label_min_epsilon <= self.label_epsilon,
                "label_min_epsilon",
                "at most label_epsilon",
            ),
            (
                all(_AGENT.fullmatch(name) for name in self.parties),
                "parties",
                "a list of keys as murmuration agent prints them: 64 hexadecimal digits",
            ),
            *((getattr(self, f.name) >= 0, f.name, kinds[type(f.default)]) for f in numbers),
            (
                not (self.strategies and self.label_epsilon),
                "strategies",
                "empty where label_epsilon is set: labels leave randomized, or not at all",
            ),
        ]
        for good, rule, expected in checks:
            if not good:
                raise InputError(f"policy {rule} must be {expected}; got {getattr(self, rule)!r}")

    @classmethod
    def load(cls, path: Path) -> "Policy":
        """The policy in a file.

        Raises:
            InputError: it cannot be read, or has an unknown rule or a value of the wrong kind.
        """
        try:
            return cls.parse(read_regular(path), path)
        except OSError as error:
            raise InputError(f"policy {path} cannot be read: {error}") from None

    @classmethod
    def parse(cls, content: bytes, path: Path) -> "Policy":
        """The policy that is the ``content`` of a file, whose path messages name.

        Raises:
            InputError: as ``load``.
        """
        try:
            rules = parse_toml(content.decode())
        except ValueError as error:
            raise InputError(f"policy {path} cannot be read: {error}") from None
        known = {field.name: field for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in rules.items():
            if name not in known:
                raise InputError(f"{path}: unknown rule {name!r}; known: {', '.join(known)}")
            values[name] = _typed(path, name, value, known[name].default)
        return cls(**values)

    @property
    def terms(self) -> dict[str, object]:
        """As the settings of a node by which ``client.answers`` knows its owner's terms."""
        terms: dict[str, object] = {"data": "agent", "public-items": self.public_items}
        if self.secure_only:
            terms |= {secure.ONLY: True}
        if least := max(self.min_parties, self.honest_parties):
            terms |= {secure.LEAST: least}
        if self.parties:
            terms |= {secure.SIGNERS: self.parties}
        if self.label_epsilon:
            terms |= {"label-epsilon": self.label_epsilon, "label-delta": self.label_delta}
            terms |= {"label-min-epsilon": self.label_min_epsilon or self.label_epsilon}
            terms |= {"label-cap": self.label_cap}
            terms |= {"state": "agent"}
        return terms

    @property
    def halves(self) -> Mapping[str, str]:
        """The node halves that this policy could allow, as in ``strategies.registry.allowable``.

        Of other packages only those strategies are looked at, and imported, that it does allow.
        """
        return registry.allowable(frozenset(self.strategies))

    @property
    def node_halves(self) -> Mapping[str, NodeHalf]:
        """The node halves that can run here, by their names in requests; imports as ``halves``."""
        return registry.node_halves(frozenset(self.strategies))

    def _longest(self, strategy: str, parameters: Mapping[str, messages.Scalar]) -> float:
        length = self.node_halves[strategy].length
        assert length is not None  # or the strategy is among no policy's
        return length(partial(messages.number, parameters))

    def check_registry(self, content: RecordDict) -> None:
        """Check that the node may say whom it hosts; PolicyRefusal if not."""
        request = config_of(content, "registry")
        self.check_features(str(request["features"]))
        if request["counts"] and not self.public_items:
            raise PolicyRefusal("public_items", "numbers of judgements are not public here")

    def check_features(self, config: str) -> None:
        """Check that a feature map may be computed and learnt on; PolicyRefusal if not."""
        try:
            data = json.loads(config)
            kind, size = str(data["kind"]), data.get("dimension", 0)
            name = kind if kind in _UNNAMED else str(data["path"])
            ngrams = data.get("ngrams", 1)
            strengths = len(data.get(STRENGTHS, ()))
            of_scorer = data.get(SCORER, {}).get("features")
            others = [path for value in data.values() for path in _paths(value)]
            if (name in _UNNAMED and name != kind) or any(path in _UNNAMED for path in others):
                raise ValueError("a model that goes by the name of something else")
            if type(size) is not int or type(ngrams) is not int:
                raise TypeError("sizes that are no whole numbers")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise PolicyRefusal("features", "the request names no feature map") from None
        for path in (name, *others, *((STRENGTHS,) if strengths else ())):
            if path not in self.features:
                listed = ", ".join(self.features) or "none"
                raise PolicyRefusal("features", f"{path!r} was asked for; allowed: {listed}")
        if (task := data.get("task", "reward")) not in self.tasks:
            raise PolicyRefusal(
                "tasks", f"{task!r} was asked for; allowed: {', '.join(self.tasks) or 'none'}"
            )
        if of_scorer is not None:  # a map of its own, which is computed too
            if not isinstance(of_scorer, Mapping) or SCORER in of_scorer:
                raise PolicyRefusal("features", "the request names no feature map")
            self.check_features(json.dumps(of_scorer))
        if size + strengths > self.max_dimension or ngrams > _MOST_NGRAMS:
            raise PolicyRefusal(
                "max_dimension",
                f"{size + strengths} features of {ngrams} words; {self.max_dimension} of "
                f"{_MOST_NGRAMS} are the most",
            )

    def check_work(self, work: messages.TrainRequest) -> StatedPlan:
        """The stated plan of a request to work that this policy allows, its cost not looked at.

        Raises:
            PolicyRefusal: it does not.
        """
        parameters = work.parameters
        strategy = str(parameters.get("strategy", ""))
        if strategy == registry.COUNTS:
            raise PolicyRefusal(
                "strategies",
                "numbers of judgements are not told for choosing a group size: begin again with "
                "--group-size",
            )
        if strategy not in {self.halves[name] for name in self.strategies}:
            listed = ", ".join(self.strategies) or "none"
            raise PolicyRefusal("strategies", f"{strategy!r} was asked for; allowed: {listed}")
        self.check_features(str(parameters.get("features", "")))
        longest = self._longest(strategy, parameters)
        if not 0.0 < longest <= self.max_clip:  # turned around: NaN is not allowed
            raise PolicyRefusal(
                "max_clip", f"one user's part could be {longest:g} long; {self.max_clip:g} at most"
            )
        group_size = messages.number(parameters, "group-size", math.inf)
        if self.node_halves[strategy].whole:
            group_size = math.inf
        most = self.max_group_size or math.inf
        if not 1.0 <= group_size <= most:
            raise PolicyRefusal(
                "max_group_size",
                f"{group_size:g} judgements of a user in one round; {most:g} at most",
            )
        if parameters.get("shared-passes") and not self.shared_passes:
            raise PolicyRefusal("shared_passes", "passes are isolated: one user's rows in each")
        if not messages.number(parameters, "local-steps", 1.0) <= _MOST_LOCAL_STEPS:
            raise PolicyRefusal("strategies", f"more than {_MOST_LOCAL_STEPS} local steps")
        plan = self.check_plan(parameters)
        round_ = messages.number(parameters, "round", -1.0)
        if not (1 <= round_ <= plan.rounds and round_ == int(round_)):
            raise PolicyRefusal("max_rounds", f"round {round_:g} of a plan of {plan.rounds}")
        self._check_noise(strategy, parameters, plan)
        return plan

    def _check_noise(
        self, strategy: str, parameters: Mapping[str, messages.Scalar], plan: StatedPlan
    ) -> None:
        """Check that the agents' own noise is what the stated plan counts on; PolicyRefusal if not.

        How far one user can move the sums follows from the request, and so does all agents' noise:
        no word of the server's is in it.
        """
        if not self.honest_parties:
            return
        try:
            parties, shares = messages.read_noise(parameters)
        except ValueError as error:
            raise PolicyRefusal("honest_parties", str(error)) from None
        if not parties:
            raise PolicyRefusal(
                "honest_parties",
                "the server would see sums before noise; nodes must add it (--noise distributed)",
            )
        clip = messages.number(parameters, "clip-norm", math.inf)
        for event, _ in plan.charges:
            inner = event.event if isinstance(event, DiscretizedGaussian) else event
            lengths = {"sum": self._longest(strategy, parameters)}
            # What is sampled by the server is charged as if it were not, and nothing else may be.
            if not isinstance(inner, PoissonGaussian):
                if not _tosses(inner, strategy, parameters):
                    raise PolicyRefusal(
                        "honest_parties", "the stated plan counts on coins that no agent tosses"
                    )
                lengths["sum"] = clip  # of one example; the agent itself samples them
            if "middle" in parameters:
                middle = messages.number(parameters, "middle", math.nan)
                lengths["within"] = max(middle, 1.0 - middle)
            there = NodeNoise(
                parties,
                {
                    name: NoisySum(shares.get(name, 0.0) * math.sqrt(parties), 1.0, length)
                    for name, length in lengths.items()
                },
            )
            stated = getattr(inner, "noise_multiplier", math.inf)
            agreed = isinstance(event, DiscretizedGaussian) and event.parties == parties
            if not (agreed and stated <= there.noise_multiplier * (1.0 + 1e-12)):
                raise PolicyRefusal(
                    "honest_parties",
                    f"nodes' noise of {there.noise_multiplier:.4g} does not carry the stated plan",
                )

    def check_crowd(self, parties: int) -> None:
        """Check that a session of so many ``parties`` keeps the honest ones' noise together.

        Everybody holds a share of a party's seed and of its key. A party that colludes with the
        server shows both, an honest one only the share that the server asks for; with enough of
        both one sum opens alone, with the noise of one share.

        Raises:
            PolicyRefusal: so many need not be honest that they could open one sum alone.
        """
        least = 2 * (parties - threshold(parties)) + 1
        if 1 < self.honest_parties < least:
            raise PolicyRefusal(
                "honest_parties",
                f"in a session of {parties} one sum can be opened alone unless {least} are honest",
            )

    def check_evaluation(self, parameters: Mapping[str, messages.Scalar]) -> StatedPlan:
        """The stated plan of a request for figures about held-out users, its cost not looked at.

        Raises:
            PolicyRefusal: this policy does not allow them, or the plan does not pay for them.
        """
        self.check_features(str(parameters.get("features", "")))
        plan = self.check_plan(parameters)
        if not plan.figures:
            raise PolicyRefusal(
                "max_epsilon", "the stated plan pays for no figures about held-out users"
            )
        return plan

    def check_plan(self, parameters: Mapping[str, messages.Scalar]) -> StatedPlan:
        """The plan that a request states, if its promise is of the kind that is asked for here.

        Raises:
            PolicyRefusal: it is not, or there is none.
        """
        stated = parameters.get(PARAMETER)
        if not isinstance(stated, str):
            raise PolicyRefusal("max_epsilon", "the request states no plan")
        try:
            plan = StatedPlan.from_json(stated)
        except ValueError as error:
            raise PolicyRefusal("max_epsilon", f"the request states no plan: {error}") from None
        if plan.adjacency != self.adjacency:
            raise PolicyRefusal(
                "adjacency", f"the plan protects under {plan.adjacency}, not {self.adjacency}"
            )
        if plan.held_out > MOST_SHARE:
            raise PolicyRefusal(
                HOLD_OUT,
                f"the plan holds out a share of {plan.held_out:g}; {MOST_SHARE:g} is the most that "
                "is believed",
            )
        return plan


def _tosses(event: Event, strategy: str, parameters: Mapping[str, messages.Scalar]) -> bool:
    """True if a request for a sum of examples samples as ``event`` says."""
    return (
        isinstance(event, MixtureGaussian)
        and strategy == "els"
        and messages.number(parameters, "group-size", math.inf) <= event.group_size
        and messages.number(parameters, "probability", math.inf) <= event.probability
    )


def _paths(value: object) -> Iterator[str]:
    """Yield every path that is named within a part of a description."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from (str(inner),) if name == "path" else _paths(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _paths(inner)


def _typed(path: Path, name: str, value: object, default: object) -> object:
    """A rule's value as the dataclass has it."""
    if isinstance(default, tuple):
        if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            return tuple(value)
    elif isinstance(default, float) and type(value) in (int, float):
        number = float(value)  # type: ignore[arg-type]
        if math.isfinite(number):
            return number
    elif type(value) is type(default):
        return value
    kind = "list of texts" if isinstance(default, tuple) else type(default).__name__
    raise InputError(f"{path}: rule {name} must be a {kind}; got {value!r}")
