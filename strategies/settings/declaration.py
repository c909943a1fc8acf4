"""The declaration of a setting: made once; help and checks follow from it.

A declaration holds name, type, default, help, check, choices and panel. From it come the fields of
``strategies.config.RunConfig``, range checks, the options of ``murmuration run`` and their places
in ``--help``, the table of settings on the site, and ``[tool.flwr.app.config]`` in
pyproject.toml (where Flower wants every key that may be overridden). ``run.Settings`` are those of
every run; what is of one strategy is declared in a frozen dataclass of its own, here for those that
are here (``catalogue``), because options and help need declarations alone and a strategy's file
needs libraries that take long; in its file for another package's.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import partial
from typing import Any, Protocol, TypeVar

from murmuration.preference.data.errors import InputError
from murmuration.privacy.extensions import Group

Scalar = bool | int | float | str
Value = TypeVar("Value", bool, int, float, str)

#: Panels of ``--help``, in their order. What is of single strategies stands behind them.
DATA, PROMISE, TRAINING = "Data", "Privacy", "Training"
MODEL, RUNTIME, OUTPUT = "Model", "Runtime", "Output"
PANELS = (DATA, PROMISE, TRAINING, MODEL, RUNTIME, OUTPUT)
OF_STRATEGY = "Only for"

#: Of strategies that other packages bring (``strategies.registry``).
ENTRY_POINTS = "murmuration.strategies"


@dataclass(frozen=True, kw_only=True)
class About:
    """Facts of a setting beside its name, type and default.

    Attributes:
        help: a description, including its default behaviour.
        panel: of ``--help``.
        choices: names that it can be, besides the default.
        others: the group by which other packages bring more of them.
        good: whether a value could be used in some run.
        expected: a description of those that could.
        steps: whether it is about steps and sampling, which strategies that solve do not have.
        base: whether it is about a language model.
        deployed: whether it is for deployments only, and no option of a simulation.
        changeable: whether a resumed run may have another: it decides neither result nor cost.
        common: whether most runs set it, so that plain ``--help`` shows it.
        pinned: from the value given to the value recorded, such as a file's name with its digest.
    """

    help: str
    panel: str = OF_STRATEGY
    choices: tuple[str, ...] = ()
    others: Group | None = None
    good: Callable[[Any], bool] = lambda value: True
    expected: str = ""
    steps: bool = False
    base: bool = False
    deployed: bool = False
    changeable: bool = False
    common: bool = False
    pinned: Callable[[Any], Any] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All choices available here; no package is imported for them."""
        return self.choices + (self.others.names() if self.others else ())

    @property
    def above_zero(self) -> bool:
        """True if 0 stands for the default, and cannot be given as a value."""
        return self.expected.startswith(("at least", "a positive"))


def setting(default: Value, help_: str, **about: Any) -> Value:
    """A field of a dataclass of settings; keywords are the attributes of ``About``."""
    return field(default=default, metadata={"about": About(help=help_, **about)})


class Declare(Protocol):
    """As ``setting``."""

    def __call__(self, default: Value, help_: str, **about: Any) -> Value:
        """A field of a dataclass of settings."""
        ...


def settings_in(panel: str, **about: Any) -> Declare:
    """As ``setting``, for several that share their panel and, if given, further attributes."""
    return partial(setting, panel=panel, **about)


def declared(settings: type) -> "tuple[Field[Any], ...]":
    """The fields of a dataclass that were declared with ``setting``."""
    return tuple(each for each in fields(settings) if "about" in each.metadata)


def also_taken(settings: type) -> tuple[str, ...]:
    """Names of settings about steps that have a meaning for a strategy that solves; its own
    settings name them.
    """
    return getattr(settings, "also_takes", ())


def about(setting_field: "Field[Any]") -> About:
    """The declaration made with ``setting``."""
    return setting_field.metadata["about"]


def option(name: str) -> str:
    """The name of a setting on the command line."""
    return "--" + name.replace("_", "-")


def positive(value: float) -> bool:
    """A finite number above 0."""
    return math.isfinite(value) and value > 0


def positive_or_default(value: float) -> bool:
    """True if ``positive``, or 0, which stands for the default."""
    return value == 0 or positive(value)


def not_negative(value: float) -> bool:
    """True if at least 0; 0 stands for the default, unless it is the least value itself."""
    return value >= 0


def a_share(value: float) -> bool:
    """0 to 1."""
    return 0.0 <= value <= 1.0


#: ``good`` and ``expected`` of whole numbers and lengths with a default of their own.
AT_LEAST_ONE: dict[str, Any] = {"good": not_negative, "expected": "at least 1"}
POSITIVE: dict[str, Any] = {"good": positive_or_default, "expected": "a positive number"}


def check_values(settings: object) -> None:
    """InputError, naming the option, for the first value that no run could use."""
    for each in declared(type(settings)):
        value, known = getattr(settings, each.name), about(each)
        named = not known.choices or value in (each.default, *known.choices)
        if not (named or value in known.names) or not known.good(value):
            expected = known.expected or f"one of {', '.join(known.names)}"
            raise InputError(f"{option(each.name)} must be {expected}; got {value!r}")


def by_setting(
    of_strategies: Mapping[str, type],
) -> dict[str, tuple["Field[Any]", tuple[str, ...]]]:
    """The settings of single strategies, by name: the field, and the strategies that have it."""
    result: dict[str, tuple[Field[Any], tuple[str, ...]]] = {}
    for strategy, own in of_strategies.items():
        for each in declared(own):
            first, names = result.get(each.name, (each, ()))
            result[each.name] = first, (*names, strategy)
    return result
