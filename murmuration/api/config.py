"""From settings that are given to all those of a run: defaults, paths, and what a run that is
resumed had."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

import tomli_w

from murmuration.api.rows import locate, with_columns
from murmuration.preference.data.errors import InputError, reword
from murmuration.preference.data.in_memory import Source
from murmuration.preference.data.public_names import as_source
from murmuration.preference.data.sources import absolute, parse_source
from murmuration.preference.features.hashing import AUTO, chosen_features, parse_features
from murmuration.preference.features.strengths import text_features
from murmuration.preference.gguf import SMOLLM2, is_gguf
from murmuration.preference.online import is_of_hub, is_online
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.regular_files import read_regular
from murmuration.strategies import registry
from murmuration.strategies.config import (
    CHECK,
    SETTINGS,
    RunConfig,
    by_field,
    read_settings,
    typed,
)
from murmuration.strategies.settings.declaration import about, option
from murmuration.strategies.settings.from_python import in_python
from murmuration.strategies.settings.privacy import check_delta, parse_delta
from murmuration.strategies.settings.sampling import ROUNDS

#: The embedded population, by task: to train on, and other users to test on.
_EMBEDDED = {
    "reward": ("murmuration.population:train", "murmuration.population:test"),
    "text": ("murmuration.population:texts_train", "murmuration.population:texts_test"),
    "sft": ("murmuration.population:train", "murmuration.population:test"),
    "policy": ("murmuration.population:train", "murmuration.population:test"),
}


@dataclass(frozen=True, init=False)
class TrainConfig(RunConfig):
    """Settings of a run, for ``train``, ``plan``, ``compare`` and ``tune``.

    It is checked where it is written, and cannot be changed; ``changed`` makes another.

        >>> from murmuration import TrainConfig, plan
        >>> config = TrainConfig(epsilon=3, users=4800, cohort=500, heldout=0.0)
        >>> round(plan(config)["noise_multiplier"], 2)
        2.26

    Args:
        own: The settings of its strategy, if they are not among ``settings``.
        **settings: The settings of ``train``.

    Raises:
        InputError: there is no such setting, or a value that no run could use.
    """

    def __init__(self, own: object = None, **settings: Any) -> None:
        try:
            super().__init__(own, **as_written(settings))
        except InputError as error:
            reword(error, in_python)
            raise

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Self:
        """The config in a file, as ``murmuration run --config`` takes it.

        Raises:
            InputError: the file cannot be read, holds what is no setting, or names something of a
                hub, and this is not within ``online()``.
        """
        written = read_settings(Path(path).expanduser())
        if (of_hub := _of_hub(written, {})) and not is_online():
            raise InputError(
                f"{path}: {of_hub[0]} = {written[of_hub[0]]!r} is of a hub: read it within "
                "murmuration.online(), or leave it out there"
            )
        if written.get("delta") == 0.0:
            written["delta"] = "n^-1.1"
        return cls(**written)

    def to_toml(self) -> str:
        """The settings that are not defaults, as the text of such a file.

        The seed is left out: whoever reads it could subtract the noise.
        """
        return tomli_w.dumps({name: v for name, v in self.given.items() if name != "seed"})

    def changed(self, **settings: Any) -> Self:
        """The config with other settings; InputError as for the class."""
        return type(self)(**{**self.given, **settings})

    @property
    def given(self) -> dict[str, Any]:
        """The settings that are not defaults, by name."""
        settings = by_field(self.to_run_config())
        result = {n: value for n, value in settings.items() if value != SETTINGS[n].default}
        strategy = registry.named(self.strategy)
        if self.rounds == (strategy.rounds[0] if strategy.rounds else ROUNDS):
            del result["rounds"]
        if strategy.local:
            del result["adjacency"]  # there is no other
        if not self.delta:
            result["delta"] = "n^-1.1"
        return result


def as_written(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a config has them, from those that a program gives.

    Raises:
        InputError: there is no such setting, or a value is none of it.
    """
    settings = with_columns(by_field(settings))
    known = [name for name, field in SETTINGS.items() if not about(field).deployed]
    for name in settings:
        if name not in known:
            close = get_close_matches(name, (*known, "user_column"), cutoff=0.6)
            others = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
            raise InputError(f"unknown setting {name!r}; {others}")
    result = {}
    for name, value in settings.items():
        if value is None:
            continue
        if name == "delta":
            parse_delta(str(value))
        elif name == "adjacency":
            value = parse_adjacency(value).value
        elif about(SETTINGS[name]).pinned:
            value = as_source(value)
        result[name] = os.fspath(value) if isinstance(value, os.PathLike) else value
    return result


def config_of(
    sources: Mapping[str, Source],
    folder: Path | None,
    config: TrainConfig | None,
    settings: Mapping[str, Any],
) -> RunConfig:
    """The config of a run in a folder, from a config and settings that programs give.

    Raises:
        InputError: there is no such setting, or a value that no run could use.
    """
    given = {**(config.given if config else {}), **as_written(settings)}
    folder = run_folder(folder or given.get("out"))
    given |= {name: locate(source, name, folder) for name, source in sources.items()}
    return make_config({**given, "out": str(folder)})


def parse_adjacency(name: Adjacency | str) -> Adjacency:
    """The adjacency of this name.

    Raises:
        InputError: there is none of it.
    """
    try:
        return Adjacency(name)
    except ValueError:
        raise InputError(f"adjacency must be one of {', '.join(Adjacency)}; got {name!r}") from None


def make_config(given: Mapping[str, Any]) -> RunConfig:
    """The config with the settings that are given (None: not given) and defaults for the others.

    With ``resume`` the others are those of the run in ``out``.

    Raises:
        InputError: a value that no run could use, or nothing to resume.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    for name, value in chosen.items():
        chosen[name] = typed(name, value)
    out, resume = chosen.pop("out", None), chosen.pop("resume", False)
    for name in ("data", "test"):
        if chosen.get(name):
            chosen[name] = absolute(chosen[name])
    for name, value in chosen.items():
        if value == 0 and about(SETTINGS[name]).above_zero:
            expected = about(SETTINGS[name]).expected
            raise InputError(f"{option(name)} must be {expected}; got 0: leave it out")
    if chosen.get("base"):
        from murmuration.preference.base_names import resolve_base

        chosen["base"] = resolve_base(chosen["base"])
    for name, value in chosen.items():
        if value and (pinned := about(SETTINGS[name]).pinned):
            chosen[name] = pinned(value)
    if "features" in chosen:
        strengths, texts = text_features(chosen["features"])
        named = chosen_features(texts)
        if texts == AUTO:
            print(f"--features auto: {named}", file=sys.stderr)
        path = parse_features(named).get("path", named) if named or not strengths else ""
        # Of a GGUF file the name says that states are read, where its folder is an encoder's.
        if is_gguf(named):
            path = named if named == SMOLLM2 else absolute(named)
        chosen["features"] = strengths + path
    if resume:
        if not out:
            raise InputError("--resume needs --out, the folder of the run to continue")
        former = _former(Path(out).expanduser())
        _ask_no_hub(former, chosen)
        chosen = {**former, **chosen}
    elif "data" not in chosen:
        data, test = _EMBEDDED.get(chosen.get("task", "reward"), _EMBEDDED["reward"])
        chosen = {"data": data, "test": test, **chosen}
    if "cohort" in chosen and chosen.get("strategy") in registry.solved() and not resume:
        raise InputError(
            f"--cohort has no meaning for --strategy {chosen['strategy']}: everybody takes part"
        )
    config = RunConfig.from_run_config({**chosen, "out": str(run_folder(out)), "resume": resume})
    if not resume and config.private and ("delta" in chosen or config.cohort):
        check_delta(config.delta, config.users)
    return config


def run_folder(out: str | os.PathLike[str] | None) -> Path:
    """The folder of a run: as given, else a new one below ``runs``."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return (Path(out).expanduser() if out else Path("runs") / stamp).absolute()


def with_file(path: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in a file, overridden by those that are given.

    Models on a hub that the file names are not fetched, unless ``--online`` is given.

    Raises:
        InputError: the file cannot be read, or holds what is no setting.
    """
    written = read_settings(path)
    _ask_no_hub(written, given)
    return {**written, **given}


def _former(folder: Path) -> dict[str, Any]:
    try:
        settings = json.loads(read_regular(folder / "config.json"))
        seed = json.loads(read_regular(folder / "private" / "seed.json"))
    except (OSError, ValueError) as error:
        raise InputError(f"--resume: there is no run in {folder} ({error})") from None
    if not isinstance(settings, dict) or not isinstance(seed, dict):
        raise InputError(f"--resume: the files of the run in {folder} are damaged")
    if "search" in settings:
        raise InputError(
            f"--resume: in {folder} is a search: continue it with the command that began it"
        )
    settings.pop(CHECK, None)
    if unknown := sorted(settings.keys() - SETTINGS.keys()):
        raise InputError(
            f"--resume: {folder / 'config.json'}: unknown setting {unknown[0]!r}: the run is "
            "another version's, which has to end it"
        )
    return {**settings, "seed": seed.get("seed")}


def _ask_no_hub(written: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Forbid asking a hub, in this process and those that it starts, where what a file has
    ``written`` names something of one that was not ``given``; unless `--online` was said."""
    if _of_hub(written, given) and not is_online():
        os.environ["HF_HUB_OFFLINE"] = "1"


def _of_hub(written: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """The settings that name something of a hub in a file, and are not ``given`` beside it."""
    names = {name: str(written.get(name) or "") for name in ("base", "features", "data", "test")}
    _, names["features"] = text_features(names["features"])
    return [
        name for name, text in names.items()
        if given.get(name) is None and text != "hashing" and is_of_hub(parse_source(text).name)
    ]  # fmt: skip
