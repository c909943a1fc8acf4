"""The result of a run of training: what ``result.json`` holds, written and read as a whole.

Every run has every field; what a run has not is None. `Result.read` takes no file with other
fields, so that whatever reads a result can rely on each.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints

from murmuration.preference.data.errors import InputError
from murmuration.privacy.disclosure import Disclosure, disclosed
from murmuration.server.record.run_files import read_json

FILE = "result.json"


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of a run of training.

    Raises:
        InputError: a field of another type.
    """

    # What was promised, and what is behind it.
    run: str
    private: bool
    proven: bool
    seeded: bool
    one_user_per_row: bool
    adjacency: str
    epsilon: float | None
    epsilon_target: float | None
    epsilon_against_server: float | None
    delta: float
    promise: dict[str, Any]
    attack: dict[str, Any] | None
    second_opinion: dict[str, Any] | None
    theorem: dict[str, Any]
    ledger_head: str
    warnings: list[str]
    # The plan.
    task: str
    strategy: str
    model: str
    noise: str | None
    noise_multiplier: float
    noise_parties: int | None
    clip_norm: float | None
    group_size: int
    rounds_planned: int
    users: int
    cohort: int
    dimension: int
    gradients: float
    bytes_per_user: float
    learning_rate: float | None
    secure_aggregation: bool
    user_isolation: str | None
    features: dict[str, Any]
    versions: dict[str, Any]
    out: str
    # What came of it.
    rounds: int
    stopped: str | None
    seconds_training: float
    users_per_second: float | None
    weights: str
    choice: dict[str, Any] | None
    outcome: dict[str, Any]
    # What was measured.
    test: str
    test_is_public: bool
    test_users: int | None
    heldout_users: int
    heldout_epsilon: float | None
    heldout_chance: float | None
    heldout_accuracy: float | None
    heldout_accuracy_by_user: float | None
    heldout_error: float | None
    heldout_noise: float | None
    heldout_loss: float | None
    heldout_perplexity: float | None
    heldout_loss_noise: float | None
    accuracy_over_users: dict[str, Any] | None
    baselines: dict[str, Any] | None
    policy: dict[str, Any]

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            if not _is(value := getattr(self, name), kind):
                raise InputError(f"{name} is {value!r}, not {kind}")

    @classmethod
    def from_disclosure(cls, values: Disclosure) -> Self:
        """The result of values that everybody may see; TypeError for other fields."""
        return cls(**disclosed(values))

    @classmethod
    def from_json(cls, values: Mapping[str, Any], path: Path) -> Self:
        """The result that the file ``path`` holds.

        Raises:
            InputError: a field is missing, unknown or of another type.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        for name in sorted(values.keys() ^ names):
            why = "is missing" if name in names else "is no field of a result"
            raise InputError(f"{path}: {name} {why}: it is damaged, or of another version")
        try:
            return cls(**values)
        except InputError as error:
            raise InputError(f"{path}: {error}: bring back an undamaged copy") from None

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """The result of the run in a folder; None if it has not ended.

        Raises:
            InputError: the file is damaged.
        """
        values = read_json(folder / FILE)
        return cls.from_json(values, folder / FILE) if values else None

    def to_json(self) -> dict[str, Any]:
        """The content of ``result.json``."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def _is(value: object, kind: Any) -> bool:
    """True for a value of a type as fields state it; a whole number is a float, too."""
    options = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    kinds = {get_origin(each) or each for each in options}
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, int) and float in kinds:
        return True
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return isinstance(value, tuple(kinds))
