"""The settings of every run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from murmuration.preference.data.schema import Schema
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies.settings.data import DataConfig
from murmuration.strategies.settings.declaration import Scalar, declared
from murmuration.strategies.settings.model import ModelConfig
from murmuration.strategies.settings.optimizer import OptimizerConfig
from murmuration.strategies.settings.own import NoSettings, Sampled
from murmuration.strategies.settings.privacy import PrivacyConfig
from murmuration.strategies.settings.runtime import RuntimeConfig
from murmuration.strategies.settings.sampling import (
    MOST_COHORT,
    SamplingConfig,
    cohort_of_turns,
    usual_cohort,
)

if TYPE_CHECKING:
    from murmuration.privacy.mechanisms.hold_out import HoldOut

Own = TypeVar("Own")


def schema_of(run_config: Mapping[str, Scalar]) -> Schema:
    """The schema that a simulation's run config declares for its data.

    Single ratings are not paired if the set of ratings is public, or must stay the same when more
    ratings come.
    """
    adjacency = str(run_config.get("adjacency", Adjacency.ADD_REMOVE))
    public = Adjacency(adjacency).counts_are_public
    pair_thumbs = not public and run_config.get("releases", 1) == 1
    return Schema.of({**run_config, "pair-thumbs": pair_thumbs})


@dataclass(frozen=True)
class Settings(
    RuntimeConfig,
    OptimizerConfig,
    ModelConfig,
    SamplingConfig,
    PrivacyConfig,
    DataConfig,
):
    """The settings of every run. 0 or "" stand for a default that depends on others.

    All are public parameters but ``seed``.

    Attributes:
        own: the strategy's own settings, of the dataclass that it declares.
    """

    own: object = NoSettings()

    def of(self, own: type[Own]) -> Own:
        """The strategy's own settings of a type; the type's defaults if the strategy has none of
        it.
        """
        return self.own if isinstance(self.own, own) else own()

    @property
    def schema(self) -> Schema:
        """The schema that the settings declare for the data."""
        return schema_of(self.to_run_config())

    def to_run_config(self) -> dict[str, Scalar]:
        """Flower's flat run config: names with dashes, including the strategy's own settings."""
        return {
            each.name.replace("_", "-"): getattr(part, each.name)
            for part in (self, self.own)
            for each in declared(type(part))
        }

    @property
    def private(self) -> bool:
        """True for every strategy but one: the run has a privacy guarantee."""
        return self.strategy != "nonprivate"

    @property
    def trains_layers(self) -> bool:
        """Return whether more than a linear head is trained."""
        return bool(self.base) and self.train != "head"

    def cohort_of(self, registered: int) -> int:
        """The expected number of users in a round: as given, else by ``usual_cohort``.

        Under ``add-remove`` the number of registered users is private, and not used. If groups of
        users take turns, the cohort is one that divides the users into whole groups.
        """
        if self.cohort:
            return self.cohort
        if self.of(Sampled).sampling == "blt":
            users = self.trained_on(registered)
            return cohort_of_turns(users, usual_cohort(users))
        if self.private and self.exact_users:
            return MOST_COHORT
        return usual_cohort(self.trained_on(registered))

    def trained_on(self, registered: int) -> int:
        """The nominal number of users to train on: a public constant.

        With a hold-out it is not the actual number of those left, which is random, but the expected
        share of those who registered.
        """
        if self.users:
            return self.users
        return registered if self.test else round((1.0 - self.heldout) * registered)

    @property
    def exact_users(self) -> bool:
        """True if the exact number of users is published though it is private."""
        return self.adjacency == Adjacency.ADD_REMOVE and not self.users

    def measured_on(self, registered: int) -> int:
        """The nominal number of users held out if there is no test, as ``trained_on``."""
        among = self.users / (1.0 - self.heldout) if self.users else registered
        return round(self.heldout * among)

    @property
    def hold_out(self) -> "HoldOut | None":
        """The hold-out mechanism; None if nobody is held out, or nothing is promised.

        See ``privacy.mechanisms.hold_out``.
        """
        from murmuration.privacy.mechanisms import hold_out

        if self.test or not (self.private and self.heldout):
            return None
        adjacency = Adjacency(self.adjacency)
        return hold_out.usual(self.heldout, self.epsilon, adjacency, self.heldout_epsilon)
