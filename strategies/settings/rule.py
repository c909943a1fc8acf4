"""Settings that have no meaning together: when, why, and what to do instead.

A config is refused by the first rule that it breaks (``strategies.config``). The message ends with
the changes that mend it. A test breaks each rule, and applies each change that its message names.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from murmuration.strategies.settings.declaration import Scalar, declared, option
from murmuration.strategies.settings.run import Settings

#: Settings by name with their new values; None: left out.
Change = Mapping[str, Scalar | None]


@dataclass(frozen=True)
class Rule:
    """Settings that have no meaning together.

    Attributes:
        broken: from a config, and the ``Strategy`` that it names, to True if it breaks the rule.
        why: the reason. Names of settings in braces stand for their values.
        instead: changes of settings. Each of them alone mends the config; none, where no change of
            settings alone does.
    """

    broken: Callable[[Settings, Any], object]
    why: str
    instead: tuple[Change, ...]

    def message(self, config: Settings) -> str:
        """The reason, and the changes that mend it."""
        values, changed = {}, set[str]()
        for part in (config, config.own):
            for each in declared(type(part)):
                values[each.name] = getattr(part, each.name)  # all public but the seed
                if values[each.name] != each.default:
                    changed.add(each.name)
        del values["seed"]
        written = [_written(change, changed) for change in self.instead]
        use = [
            f"{given} without {left_out}" if left_out else given
            for given, left_out in written
            if given
        ]
        leave_out = [left_out for given, left_out in written if not given]
        ways = [f"use {' or '.join(use)}"] if use else []
        ways += [f"leave out {' or '.join(leave_out)}"] if leave_out else []
        why = self.why.format_map(values)
        return f"{why}: {', or '.join(ways)}" if ways else why


def _written(change: Change, changed: Collection[str]) -> tuple[str, str]:
    """The options to give, and those of the ``changed`` ones to leave out."""
    given, left_out = [], []
    for name, value in change.items():
        if value is not None:
            given.append(option(name) if value is True else f"{option(name)} {value}")
        elif name in changed:
            left_out.append(option(name))
    return " ".join(given), " and ".join(left_out)


def first_broken(rules: Iterable[Rule], config: Settings, strategy: object) -> Rule | None:
    """The first of these rules that a config breaks; None if it breaks none."""
    return next((rule for rule in rules if rule.broken(config, strategy)), None)
