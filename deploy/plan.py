"""Compare a client's policy with the run that its operator plans, before it is asked.

The plan is made as the server makes it, from the numbers in the client's ``run.toml``, over users
who are made up; the policy is held against it as the owner's agent will hold it against the plan
that the server states (``client.agent.plan_check``). What counts is what the server states.
"""

import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np

from murmuration.client.agent.ledger import OwnLedger
from murmuration.client.agent.plan_check import check_asked, epsilon_of, within
from murmuration.client.agent.policy import Policy, PolicyRefusal
from murmuration.deploy.terms import read_settings, usual_run
from murmuration.preference.bases import base_of
from murmuration.preference.data.errors import InputError
from murmuration.privacy import extensions
from murmuration.privacy.accounting.chained_record import head_path
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.disclosure import Released
from murmuration.privacy.figures import counted
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.secure_aggregation.party import LEAST_PARTIES
from murmuration.server.record.run_directory import Value
from murmuration.server.training import with_hold_out
from murmuration.strategies import registry
from murmuration.strategies.base import Participants
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.messages import RegistryEntry
from murmuration.strategies.protocol.stated_plan import StatedPlan
from murmuration.strategies.protocol.users import Registry
from murmuration.strategies.settings.declaration import about
from murmuration.strategies.settings.sampling import MOST_COHORT
from murmuration.strategies.spec import RunContext

#: Features that need nothing but a number.
_HASHING = re.compile("hashing(:[0-9]{1,7})?")
#: A run of more is not compared: users are made up, rounds counted, noise for epsilon looked for,
#: and somebody else wrote the numbers.
_MOST = {"users": 10_000_000, "cohort": 10_000_000, "rounds": 1_000_000, "epsilon": 1_000}
#: Nodes over which the users are spread who are made up.
_NODES = 100


def compared(run: Path, policy: Policy, state: Path, *, hosted: int) -> tuple[str, bool]:
    """The answer of an owner's agent to the run of a ``run.toml``, in a line, and True if it would
    take part.

    ``state`` is the agent's folder, whose ledger says what was promised before; ``hosted`` how many
    users there are. How many parties there will be under masks is not known here: the fewest are
    taken that the policy allows.

    Raises:
        InputError: there is no such run, or the own ledger is damaged.
    """
    with extensions.only(policy.extensions):
        return _compared(run, policy, state, hosted)


def _compared(run: Path, policy: Policy, state: Path, hosted: int) -> tuple[str, bool]:
    config = usual_run(read_settings(run))
    _check_names_nothing(config)
    _check_sizes(config)
    request = usual_request(config)
    ledger = own_ledger(state)
    costs: list[float] = []

    def of_all(plans: list[StatedPlan]) -> float:
        costs.append(epsilon_of(plans, policy.delta))
        return within(policy, costs[-1])

    about = (
        f"{config.strategy}, {counted(config.rounds, 'round')}, epsilon {config.epsilon:g} "
        f"at delta {config.delta:g}"
    )
    try:
        least = max(policy.min_parties, policy.honest_parties, LEAST_PARTIES)
        parties = least if config.secure_aggregation else 0
        check_asked(policy, ledger, request, parties, of_all, hosted=hosted)
    except PolicyRefusal as refusal:
        return f"{about}: refused. {refusal}", False
    before = f" with {len(ledger.plans)} before it" if ledger.plans else ""
    return (
        f"{about}: allowed, at epsilon {costs[-1]:.4g} of {policy.max_epsilon:g}{before} (at "
        f"delta {policy.delta:g})",
        True,
    )


def _check_names_nothing(config: RunConfig) -> None:
    """Raise InputError for settings that could name a file, a model or a place on a network.

    Somebody else wrote them: to compare a plan nothing is loaded or asked for by such a name.
    """
    for field in fields(config):
        value = getattr(config, field.name)
        plain = not isinstance(value, str) or value in ("", field.default, *about(field).choices)
        by_name = field.name == "features" and _HASHING.fullmatch(str(value))
        if not (plain or by_name or field.name == "strategy"):
            raise InputError(
                f"{field.name} names {value!a}, and nothing is loaded to compare a run; the agent "
                "compares it when the run begins"
            )


def _check_sizes(config: RunConfig) -> None:
    """Raise InputError for a run whose numbers would make the comparison long or large."""
    for name, most in _MOST.items():
        if getattr(config, name) > most:
            raise InputError(
                f"{name} is {getattr(config, name):g}, and a run of more than {most:,} is not "
                "compared; the agent compares it when the run begins"
            )


def own_ledger(state: Path) -> OwnLedger:
    """The ledger of an agent, for reading; InputError if it is damaged."""
    path = state / "own-ledger.jsonl"
    if path.exists() or head_path(path).exists():
        return OwnLedger.read(path)
    return OwnLedger.empty(path)


def usual_request(config: RunConfig) -> messages.TrainRequest:
    """The request of a run's first round, for no users, with its stated plan.

    Raises:
        InputError: there is no such run, or its plan depends on what nodes say.
    """
    if config.strategy not in registry.allowable():
        raise InputError(f"--strategy {config.strategy} has no plan that could be compared")
    base = base_of(registry.base_config(config), weights=False)
    users = config.users or config.cohort or MOST_COHORT
    keys_N = np.arange(1, users + 1, dtype=np.uint64)
    parts = np.array_split(keys_N, min(users, _NODES))
    entries = {node: RegistryEntry(-1, keys_U, None) for node, keys_U in enumerate(parts)}
    everybody = Participants.all(Registry.of(entries))
    coins = config.heldout if config.hold_out else 0.0
    config = config.resolved(users)
    context = RunContext(
        strategy=registry.named(config.strategy),
        config=config,
        participants=Participants(everybody.registry, everybody.train, everybody.held_out, coins),
        source=Randomness(None),
        features=json.dumps(base.to_config()),
        start_D=base.start_D,
        log=lambda line: None,
        grid=None,  # type: ignore[arg-type]
        once=_not_asked,
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        Ledger(
            Path(folder) / "ledger.jsonl",
            adjacency=Adjacency(config.adjacency),
            delta=config.delta,
            budget=config.epsilon,
        ) as ledger,
    ):
        try:
            built = with_hold_out(registry.build(context, ledger), context, ledger)
        except ValueError as error:
            raise InputError(str(error)) from None
        strategy = built.strategy
        strategy.stated = StatedPlan.of(
            "usual", ledger.adjacency, ledger.delta, config.rounds, built.charges
        ).to_json()
    return messages.TrainRequest({}, strategy.asked_with(1), messages.NOBODY)


def _not_asked(name: str, release: Callable[[], Released[Value]]) -> Value:
    del release
    raise InputError(f"the {name} of this run depends on what nodes answer: set it")
