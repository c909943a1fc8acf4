"""The users a node hosts, and their features, computed once.

In a simulation a node hosts a contiguous share of the users in one source; every process keeps the
source it loaded last, so a thousand simulated nodes parse a file once. A deployed node hosts
everybody in the file that its own node-config names; what the server's run config says about data
is ignored there. It numbers its users in the order of their ids: that of the file may reveal
something about their judgements.

What a deployed node's rows are is declared in its node-config, under the names of the options:
``kind``, ``responses``, ``labels``, ``max-judgements``, ``max-characters``, ``one-user-per-row``. A
bad row affects its user alone: it is left out, the user stays, and only the node's own log notes
it. In a simulation the data are the operator's own, and bad rows are refused by default.

Legend: U users of the node, S sampled users, D dimensions.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from flwr.app import Context

from murmuration.preference.bases import base_of
from murmuration.preference.data.judgements import InputError, Judgements, LeftOut, OnBadRows
from murmuration.preference.data.loading import Data, load_data
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.data.sources import parse_source
from murmuration.preference.escaping import get_logger
from murmuration.preference.kinds.model import Examples, Model
from murmuration.preference.language.confined.tokenizer import confined
from murmuration.preference.online import local
from murmuration.privacy.disclosure import OperatorOnly
from murmuration.privacy.mechanisms.randomness import Randomness, user_key
from murmuration.strategies.protocol.messages import UserSelection
from murmuration.strategies.settings.run import schema_of

T = TypeVar("T")


@dataclass(eq=False)
class UserStore:
    """Judgements (or texts) and features of a node's users.

    ``place`` is its own of so many ``places`` in a simulation; −1 and 0 for a deployed one. Rows
    that turn out to be of no use where features are computed are treated as ``on_bad_rows`` says.
    """

    judgements: Data
    place: int
    places: int = 0
    on_bad_rows: OnBadRows = "isolate"
    _: KW_ONLY
    _examples: dict[str, Examples] = field(default_factory=dict)
    _names: tuple[bytes, np.ndarray, np.ndarray] | None = None

    def __post_init__(self) -> None:
        ids = self.judgements.user_ids
        if self.place < 0 and (named := sorted(ids)) != list(ids):
            place = {user: index for index, user in enumerate(ids)}
            self.judgements = self.judgements.select([place[user] for user in named])
            ids = self.judgements.user_ids
        self.keys_U = np.array([user_key(user) for user in ids], dtype=np.uint64)

    def salted_keys(self, salt: bytes) -> np.ndarray:
        """The 64-bit names of the users under a run's salt, (U,) uint64."""
        return self._named(salt)[0]

    def examples(self, features: str, weights: bool = True) -> Examples:
        """Feature differences or tokens, by the JSON config of what the reward is learnt on.

        Without ``weights`` nothing is computed with a language model; its tokens show which texts
        fit.
        """
        if features in self._examples:
            return self._examples[features]
        model = self.model(features, weights)
        examples = self._made(model)
        if model.computes:
            self._examples[features] = examples
        return examples

    def model(self, features: str, weights: bool = True) -> Model:
        """The model of a JSON config; ``weights`` as in `examples`."""
        return _base(self._here(features), weights, self.place < 0)

    def _here(self, features: str) -> str:
        """Check a server's description of features; a deployed node takes no hub name from a
        server."""
        if self.place >= 0:
            return features
        return json.dumps(local(json.loads(features), Path("the server's description")))

    def _made(self, model: Model) -> Examples:
        """Return examples that were made before, if they serve this model, too, or new ones."""
        for made in self._examples.values():
            if (examples := model.reuse(made)) is not None:
                return examples
        return self.leaving_out(lambda left_out: model.examples(self.judgements, left_out))

    def leaving_out(self, made: Callable[[LeftOut | None], T]) -> T:
        """Call ``made``, which may leave out users' rows that it cannot use.

        How many these are, and why the first is, goes to the node's own log. In a simulation in
        which bad rows are refused nothing takes them.
        """
        left_out = None if self.on_bad_rows == "refuse" else LeftOut(self.on_bad_rows)
        result = made(left_out)
        if left_out is not None:
            _tell(left_out.rows, left_out.reasons)  # these reasons quote nothing
        return result

    def where(self, asked: UserSelection) -> np.ndarray:
        """The places of a request's users, (S,) int64; −1 for users who are not, or no longer,
        here.

        A user who left since they registered contributes nothing. That must not affect others, so
        it is no error.
        """
        names_U, order_U = self._named(asked.salt)
        if not len(names_U):
            return np.full(len(asked), -1)
        first_S = np.searchsorted(names_U, asked.names_S, sorter=order_U)
        places_S = order_U[np.minimum(first_S, len(names_U) - 1)]
        return np.where(names_U[places_S] == asked.names_S, places_S, -1)

    def _named(self, salt: bytes) -> tuple[np.ndarray, np.ndarray]:
        """Salted names, and the users' places in the order of these; those of the last salt stay,
        which is a run's.
        """
        if self._names is None or self._names[0] != salt:
            names = [user_key(user, salt) for user in self.judgements.user_ids]
            names_U = np.array(names, dtype=np.uint64)
            self._names = salt, names_U, np.argsort(names_U)
        return self._names[1:]


_log = get_logger("murmuration")
_Settings = tuple[str, str, OnBadRows, str, Schema, int, int]
_kept: dict[_Settings, UserStore] = {}
#: What files were like when ``forget_changed`` saw them last, by source.
_stamps: dict[str, list[tuple[str, int, int, int]]] = {}


def share(users: int, place: int, places: int) -> range:
    """The users that node ``place`` of ``places`` hosts, out of ``users``."""
    return range(users * place // places, users * (place + 1) // places)


def keep(context: Context, judgements: Data) -> None:
    """Let the node that a context describes host these users, whatever its settings say."""
    settings = _settings(context)
    _, _, bad_rows, *_, place, places = settings
    _kept[settings] = UserStore(judgements, place, places, bad_rows)


def store_for(context: Context) -> UserStore:
    """The store of the node that a context describes, from memory if it was loaded before.

    Raises:
        InputError: the data cannot be read, or nothing says where it is.
    """
    settings = _settings(context)
    if settings not in _kept:
        data, columns, bad_rows, task, schema, place, places = settings
        if place < 0:
            judgements = load_for_node(data, columns, task, schema)
        else:
            judgements = load(data, columns, bad_rows, task, schema)
        if places > 1:
            users = share(len(judgements.user_ids), place, places)
            judgements = judgements.select(np.arange(users.start, users.stop))
        _kept[settings] = UserStore(judgements, place, 0 if place < 0 else places, bad_rows)
    return _kept[settings]


def _settings(context: Context) -> _Settings:
    """The settings that decide which users a node hosts: source, columns, handling of bad rows,
    task, schema, place, places."""
    deployed = "data" in context.node_config
    # Who says where the data are says what its columns mean: a server that could would call a
    # column of labels the prompt, which it may be told.
    config: Mapping[str, bool | int | float | str] = (
        context.node_config if deployed else context.run_config
    )
    columns, task = str(config.get("columns", "")), str(config.get("task", "reward"))
    if deployed:
        return str(config["data"]), columns, "isolate", task, Schema.of(config), -1, 1
    if not config.get("data"):
        raise InputError("no data: name a file in node-config data=…, or pass --data in simulation")
    place, places = context.node_config["partition-id"], context.node_config["num-partitions"]
    bad_rows: OnBadRows = "skip" if config.get("on-bad-rows") == "skip" else "refuse"
    schema = schema_of(config)
    return str(config["data"]), columns, bad_rows, task, schema, int(place), int(places)


def source_for(context: Context) -> Randomness:
    """The node's own randomness: in a simulation from the run's seed, if there is one.

    A deployed node draws from its own machine, whatever seed the server suggests.
    """
    seed = -1 if "data" in context.node_config else int(context.run_config.get("seed", -1))
    return Randomness(seed if seed >= 0 else None)


def forget_changed(data: str) -> None:
    """Forget a file or folder that this process has read, if it changed since.

    A change shows in the times, sizes and numbers of its files.
    """
    stamp = _stamp(Path(parse_source(data).name).expanduser())
    if _stamps.setdefault(data, stamp) != stamp:
        _stamps[data] = stamp
        load.cache_clear()
        for settings in [settings for settings in _kept if settings[0] == data]:
            del _kept[settings]


def _stamp(path: Path) -> list[tuple[str, int, int, int]]:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    result = []
    for file in files:
        with suppress(OSError):  # one that is no file is read in another way, or refused there
            seen = file.stat()
            result.append((str(file), seen.st_ino, seen.st_size, seen.st_mtime_ns))
    return result


@lru_cache(maxsize=2)
def load(
    data: str,
    columns: str,
    bad_rows: OnBadRows,
    task: str = "reward",
    schema: Schema = PAIRS,
) -> Data:
    """Judgements or texts of a source, as a task reads them; a process keeps the last two."""
    return load_data(task, data, columns, bad_rows, schema)


def load_for_node(
    data: str,
    columns: str,
    task: str = "reward",
    schema: Schema = PAIRS,
) -> Data:
    """As ``load``, at a deployed node: rows that cannot be used are left out, and noted in its own
    log."""
    result = load(data, columns, "isolate", task, schema)
    for note in result.notes:
        _log.info("%s", OperatorOnly(note))
    _tell(result.left_out, [place_of(reason) for reason in result.set_aside[:1]])
    return result


def place_of(reason: str) -> str:
    """The place of a row that was left out, without the reason, which may quote it."""
    return reason.partition(": ")[0]


def _tell(rows: int, reasons: Sequence[str]) -> None:
    """Tell the node's own log, which a simulation's terminal shows, of rows that are left out."""
    if rows:
        _log.warning("%s", OperatorOnly(f"{rows} rows are left out, the first: {reasons[0]}"))


def load_judged(
    data: str,
    columns: str,
    bad_rows: OnBadRows,
    schema: Schema = PAIRS,
) -> Judgements:
    """As ``load``, where only judgements will do."""
    loaded = load(data, columns, bad_rows, schema=schema)
    return loaded.as_judgements("users' texts have no labels")


@lru_cache(maxsize=4)
def _base(features: str, weights: bool, deployed: bool) -> Model:
    with confined(deployed):
        return base_of(json.loads(features), weights)
