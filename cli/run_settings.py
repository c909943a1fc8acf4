"""The settings of a run from the options that were given; with ``--resume`` upon its own."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from murmuration.preference.data.data_sets import absolute, parse_source
from murmuration.preference.data.rows import InputError
from murmuration.preference.features.hashing import AUTO, chosen_features, parse_features
from murmuration.preference.online import is_of_hub, is_online
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies import registry
from murmuration.strategies.config import CHECK, RunConfig, present_names, typed
from murmuration.strategies.local_label import LOCAL_LABEL

#: The embedded population, by task: to train on, and other users to test on.
_EMBEDDED = {
    "reward": ("murmuration.population:train", "murmuration.population:test"),
    "text": ("murmuration.population:texts_train", "murmuration.population:texts_test"),
    "sft": ("murmuration.population:train", "murmuration.population:test"),
    "policy": ("murmuration.population:train", "murmuration.population:test"),
}


def settings(given: dict[str, Any]) -> RunConfig:
    """The settings that options ask for (None: not given); with ``resume`` on top of the run's in
    ``out``.

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
    for name in ("rounds", "cohort"):  # where 0 in settings means: as suits the strategy and users
        if chosen.get(name) == 0 and not resume:
            raise InputError(f"--{name} must be at least 1; got 0")
    if chosen.get("base"):
        from murmuration.preference.language.loading import resolve_base

        chosen["base"] = resolve_base(chosen["base"])
    if chosen.get("policies"):
        from murmuration.preference.language.policy_class import with_digest

        chosen["policies"] = with_digest(chosen["policies"])
    if "features" in chosen:
        given, named = chosen["features"].strip(), chosen_features(chosen["features"]).strip()
        if given == AUTO:
            print(f"--features auto: {named}", file=sys.stderr)
        chosen["features"] = parse_features(named).get("path", named)
    if resume:
        if not out:
            raise InputError("--resume needs --out, the folder of the run to continue")
        former = _former(Path(out).expanduser())
        ask_no_hub(former, chosen)
        chosen = {**former, **chosen}
    elif "data" not in chosen:
        data, test = _EMBEDDED.get(chosen.get("task", "reward"), _EMBEDDED["reward"])
        chosen = {"data": data, "test": test, **chosen}
    if "cohort" in chosen and chosen.get("strategy") in registry.solved() and not resume:
        raise InputError(
            f"--cohort has no meaning for --strategy {chosen['strategy']}: everybody takes part"
        )
    if "thumbs" in (chosen.get("kind"), chosen.get("model")):  # one goes with the other
        chosen = {"kind": "thumbs", "model": "thumbs", **chosen}
    if chosen.get("strategy") == LOCAL_LABEL.name:
        chosen.setdefault("adjacency", Adjacency.REPLACE_LABELS.value)  # there is no other
    defaults = asdict(RunConfig())
    del defaults["rounds"]  # what it is depends on the strategy
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    place = Path(out).expanduser() if out else Path("runs") / stamp
    return RunConfig.from_run_config(
        {**defaults, **chosen, "out": str(place.absolute()), "resume": resume}
    )


def _former(folder: Path) -> dict[str, Any]:
    """The settings of the run in a folder."""
    try:
        settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        seed = json.loads((folder / "private" / "seed.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"--resume: there is no run in {folder} ({error})") from None
    if not isinstance(settings, dict) or not isinstance(seed, dict):
        raise InputError(f"--resume: the files of the run in {folder} are damaged")
    if settings.pop(CHECK, None) is None:
        raise InputError(
            f"--resume: the run in {folder} was begun by an earlier version, whose unfinished runs "
            "cannot be resumed (or its config.json was edited): begin again with another --out"
        )
    return {**present_names(settings), "seed": seed.get("seed")}


def ask_no_hub(written: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Let nothing ask a hub, in this process and those that it starts, where what a file has
    ``written`` names something of one that was not ``given``; unless `--online` was said."""
    names = {name: str(written.get(name) or "") for name in ("base", "features", "data", "test")}
    of_hub = [
        name for name, text in names.items()
        if given.get(name) is None and text != "hashing" and is_of_hub(parse_source(text).name)
    ]  # fmt: skip
    if of_hub and not is_online():
        os.environ["HF_HUB_OFFLINE"] = "1"
