"""The config of a run: one frozen object, from a command line, a file, or Flower's run config.

Its fields are the settings of every run (``strategies.settings``), and in ``own`` those that its
strategy declares. Every one is a public parameter except ``seed``. Names in the run config are the
field names with dashes, the strategy's among the others; the same keys, and those of every other
strategy that is here, stand in pyproject.toml, because Flower refuses an override of a key that
does not exist there.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from murmuration.preference.choices import JUDGED
from murmuration.preference.data.errors import InputError
from murmuration.preference.models import ONLY_MODELS, check_model
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.regular_files import read_regular
from murmuration.strategies import registry
from murmuration.strategies.noise.choice import check_installed
from murmuration.strategies.rules import RULES
from murmuration.strategies.settings.declaration import (
    Scalar,
    about,
    by_setting,
    check_values,
    declared,
    option,
)
from murmuration.strategies.settings.own import Sampled
from murmuration.strategies.settings.privacy import parse_delta
from murmuration.strategies.settings.rule import first_broken
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.settings.sampling import ROUNDS
from murmuration.strategies.settings.toml_text import parse_toml
from murmuration.strategies.spec import Strategy

#: In a ``config.json``, beside the settings: what ties them to the run's secret keys
#: (``server.record.run_files.check_of``).
CHECK = "check"
#: The named choice ``--delta n^-1.1``: always below 1 / users.
DELTA_EXPONENT = -1.1
#: What single strategies declare: by name the field, and which strategies have it.
OWN_SETTINGS = by_setting(
    {strategy.name: strategy.settings for strategy in registry.strategies().values()}
)
#: Every setting that there is, by its name.
SETTINGS = {field.name: field for field in declared(Settings)} | {
    name: field for name, (field, _) in OWN_SETTINGS.items()
}


@dataclass(frozen=True, init=False)
class RunConfig(Settings):
    """The settings of one run.

    They are given flat, those of its strategy among the others; ``own`` may hold the latter.

    Raises:
        InputError: unknown names, wrong types, settings of other strategies than the one that is
            named, or settings that no run could use; it names the option.
    """

    def __init__(self, own: object = None, **settings: Any) -> None:
        given = {name: typed(name, value) for name, value in by_field(settings).items()}
        strategy = registry.named(given.get("strategy", Settings.strategy))
        if strategy.local:
            given.setdefault("adjacency", Adjacency.REPLACE_LABELS.value)  # there is no other
        if given.get("model") == "thumbs":
            given.setdefault("kind", "thumbs")
        if (kind := given.get("kind")) in ONLY_MODELS:
            given.setdefault("model", ONLY_MODELS[kind])
        for_one = {name: given.pop(name) for name in OWN_SETTINGS if name in given}
        flat = own_settings(strategy, for_one)
        if own is None or own == type(own)():  # another strategy's defaults stand for this one's
            own = flat
        elif type(own) is strategy.settings:
            own = replace(own, **{name: getattr(flat, name) for name in for_one})  # type: ignore[type-var]
        if type(own) is not strategy.settings:
            raise InputError(f"{own!r} are no settings of --strategy {strategy.name}")
        for each in declared(Settings):
            object.__setattr__(self, each.name, given.get(each.name, each.default))
        object.__setattr__(self, "own", own)
        if self.rounds == 0:
            object.__setattr__(self, "rounds", strategy.rounds[0] if strategy.rounds else ROUNDS)
        check_values(self)
        check_values(own)
        try:
            registry.check_adjacency(self.strategy, Adjacency(self.adjacency), own)
        except ValueError as error:
            raise InputError(str(error)) from None
        if rule := first_broken((*strategy.rules, *RULES), self, strategy):
            raise InputError(rule.message(self))
        strategy.check(self)
        _check_data_and_library(self)

    @classmethod
    def from_run_config(cls, run_config: Mapping[str, Scalar]) -> Self:
        """The config from Flower's flat run config; InputError as for the class."""
        return cls(**run_config)

    def changed(self, **settings: Scalar) -> Self:
        """The config with other settings, including those of single strategies.

        Raises:
            InputError: as for the class.
        """
        return type(self)(**{**by_field(self.to_run_config()), **settings})

    def resolved(self, registered: int) -> Self:
        """The config with all that depends on the number of users: delta, if it is n^-1.1, and the
        cohort, if all users take part or none was given.

        n is the nominal number of users, a public constant. (Charles et al. 2024, App. F, take the
        number of examples, which is private under most adjacencies.)

        Raises:
            InputError: no cohort was given, and there are too few users for the default.
        """
        users = self.trained_on(registered)
        delta = self.delta or users**DELTA_EXPONENT
        whole, sampled = self.of(Sampled).everybody, registry.named(self.strategy).samples
        if (whole or registry.named(self.strategy).everybody) and self.cohort not in (0, users):
            which = "with --sampling all" if whole else f"for --strategy {self.strategy}"
            raise InputError(
                f"--cohort has no meaning {which}: everybody takes part in each round; leave it out"
            )
        cohort = self.cohort_of(registered) if sampled and not whole else users
        if sampled and not self.cohort and cohort > users:
            raise InputError(
                f"--cohort is left out, and without --users it is {cohort}: more than there are to "
                "train on. State a round, public number of users with --users, from which the "
                "cohort follows, or give --cohort; or, where the list of users is public, "
                "--adjacency zero-out"
            )
        return replace(self, delta=delta, cohort=cohort)

    @property
    def comes_and_goes(self) -> bool:
        """True if users may come and go during the run: in a deployment whose nominal number of
        users fixes the sampling probability, unless the model is solved for at once.
        """
        return bool(self.registration and self.users) and not registry.named(self.strategy).rounds

    def immutable_fields(self) -> dict[str, Scalar]:
        """The settings that a resumed run may not change: all that decide the result or its cost.

        Settings declared by other strategies are not included, so that installing or removing a
        package does not keep a run from being resumed.
        """
        return {
            field.name: getattr(part, field.name)
            for part in (self, self.own)
            for field in declared(type(part))
            if not about(field).changeable
        }


def own_settings(strategy: Strategy, given: Mapping[str, Any]) -> object:
    """A strategy's own settings, taken from those given for any strategy.

    Raises:
        InputError: one is for other strategies, and not its default.
    """
    own = {}
    for name, value in given.items():
        field, names = OWN_SETTINGS[name]
        if strategy.name in names:
            own[name] = value
        elif value != field.default:
            raise InputError(
                f"{option(name)} is for --strategy {' and '.join(names)}, not {strategy.name}"
            )
    return strategy.settings(**own)


def read_settings(path: Path) -> dict[str, Scalar]:
    """The settings that a file gives: TOML with names as on the command line, or a ``config.json``.

    Raises:
        InputError: it cannot be read, or holds what is no setting.
    """
    try:
        text = read_regular(path).decode()
        result = json.loads(text) if path.suffix == ".json" else parse_toml(text)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be used: {error}") from None
    if not isinstance(result, dict):
        raise InputError(f"{path} holds no settings")
    result.pop(CHECK, None)  # of a config.json
    of_a_run = path.suffix == ".json"
    settings = result if of_a_run else by_field(result, str(path))
    for name, value in settings.items():
        if name not in SETTINGS or (about(SETTINGS[name]).deployed and not of_a_run):
            offered = sorted(n for n, field in SETTINGS.items() if not about(field).deployed)
            raise InputError(f"{path}: unknown setting {name!r}; known: {', '.join(offered)}")
        if name == "delta" and not value and not of_a_run:  # where 0 stands for n^-1.1
            parse_delta(str(value))
        settings[name] = typed(name, value, str(path))
    theirs = registry.strategies().get(str(settings.get("strategy", "")))
    if of_a_run and ((theirs and not theirs.samples) or settings.get("sampling") == "all"):
        settings.pop("cohort", None)  # everybody takes part
    if of_a_run:  # what is 0 there was left out there, too
        settings = {n: v for n, v in settings.items() if v or not about(SETTINGS[n]).above_zero}
    return settings


def by_field(settings: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Settings by the names of their fields.

    Args:
        settings: by name, with dashes or underscores.
        where: they were written, for the message.

    Raises:
        InputError: a setting stands there twice.
    """
    named: dict[str, Any] = {}
    for key, value in settings.items():
        name = key.replace("-", "_")
        if name in named:
            place = f"{where}: " if where else ""
            raise InputError(f"{place}{name} stands there twice, once with dashes: give one")
        named[name] = value
    return named


def typed(name: str, value: object, where: str = "") -> Any:
    """A setting's value in its type; InputError, naming it, for another or for no setting."""
    if name not in SETTINGS:
        raise InputError(f"unknown setting {name!r}; known: {', '.join(sorted(SETTINGS))}")
    if name == "delta" and isinstance(value, str):
        return parse_delta(value)
    default = SETTINGS[name].default
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if type(value) is not type(default):
        kind, place = type(default).__name__, f"{where}: " if where else ""
        raise InputError(f"{place}setting {name!r} must be a {kind}; got {value!r}")
    return value


def refuse_seed(config: RunConfig) -> None:
    """InputError if a run with real nodes has a seed: who knows it can subtract the noise."""
    if config.seed >= 0:
        raise InputError(
            "a seed is for simulations: whoever knows it can subtract the noise, so a deployed run "
            f"draws from the operating system; leave out seed={config.seed}"
        )


def _check_data_and_library(config: RunConfig) -> None:
    """InputError for a model of other judgements, or for noise whose library is missing."""
    schema = config.schema
    if config.task in JUDGED:
        check_model(config.model, schema.responses - 1, schema.kind)
    check_installed(config.noise)
