"""From the options that were given to the settings of a run; with ``--resume`` upon its own."""

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from preference.features import parse_features
from preference.judgements import InputError
from preference.language_loading import resolve_base
from privacy.adjacency import Adjacency
from server.choices import FEW_ROUNDS
from server.config import RunConfig
from server.run_files import CHECK

#: The embedded population, by task: to train on, and other users to test on.
_EMBEDDED = {
    "reward": ("sims.population:train", "sims.population:test"),
    "text": ("sims.population_texts:train", "sims.population_texts:test"),
    "sft": ("sims.population:train", "sims.population:test"),
}


def settings(given: dict[str, Any], out: str | None, resume: bool) -> RunConfig:
    """The settings that options ask for (None: not given); with ``resume`` on top of a run's own.

    Raises:
        InputError: a value that no run could use, or nothing to resume.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    for name in ("data", "test"):
        if name in chosen and Path(chosen[name]).expanduser().exists():
            chosen[name] = str(Path(chosen[name]).expanduser().absolute())
    if chosen.get("rounds") == 0:  # which in settings means: as many as suit the strategy
        raise InputError("--rounds must be at least 1; got 0")
    if chosen.get("base"):
        chosen["base"] = resolve_base(chosen["base"])
    if "features" in chosen:
        named = chosen["features"].strip()
        chosen["features"] = parse_features(named).get("path", named)
    if resume:
        if not out:
            raise InputError("--resume needs --out: which run is to be continued?")
        chosen = {**_former(Path(out).expanduser()), **chosen}
    elif "data" not in chosen:
        data, test = _EMBEDDED.get(chosen.get("task", "reward"), _EMBEDDED["reward"])
        chosen = {"data": data, "test": test, **chosen}
    if "cohort" in chosen and chosen.get("strategy") in FEW_ROUNDS and not resume:
        raise InputError(
            f"--cohort has no meaning for --strategy {chosen['strategy']}: everybody takes part"
        )
    if chosen.get("strategy") == "local-label":
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
    settings.pop(CHECK, None)
    return {**settings, "seed": seed.get("seed")}
