"""Read the files of a run; damaged ones are refused in one line.

The settings of a deployed run are in such a file too, on the server alone: a run config, where
Flower keeps them, travels to every node with the app. Of all settings a node of a deployment needs
none, because its data are declared in its own node-config.
"""

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from murmuration.preference.data.errors import InputError
from murmuration.privacy.regular_files import read_regular

#: The run config of a deployed run: the name of the file that has its settings, and nothing else.
SETTINGS_FILE = "settings-file"
_HANDED_OVER = "run-settings"
#: How an error of a deployed run begins that would come again.
REFUSED = "refused: "

PRIVATE_LOG = Path("private") / "log.jsonl"
#: In a line of the private log: the ledger's head at that time.
HEAD = "ledger"


def check_of(content: Mapping[str, Any], keys: Mapping[str, str]) -> str:
    """A keyed hash that ties content, such as settings and seed, to a run's secret keys, so that
    neither changes alone.

    With another seed or key other users would be held out than before, some of whom have been
    trained on, and no accountant covers that. It may be public: a hash (HMAC-SHA-256) under the
    keys, which are random even if the seed is not, so it reveals neither.
    """
    text = json.dumps(dict(content), sort_keys=True)
    key = json.dumps(dict(keys), sort_keys=True)
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def read_json(path: Path, *keys: str) -> dict[str, Any]:
    """A JSON file with these keys, empty if it is missing.

    Raises:
        InputError: it is damaged, or cannot be read.
    """
    try:
        data = json.loads(read_regular(path))
        if not isinstance(data, dict):
            raise TypeError("not an object")
        missing = [key for key in keys if key not in data]
        if missing:
            raise KeyError(*missing)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}): bring back an undamaged copy") from None
    return data


def former_nodes(folder: Path) -> int | None:
    """Over how many nodes the users of a run are spread; None if that is not on file."""
    nodes = read_json(folder / "private" / "nodes.json", "nodes").get("nodes")
    if nodes is not None and type(nodes) is not int:
        raise InputError(f"{folder / 'private' / 'nodes.json'} is damaged: {nodes!r} nodes")
    return nodes


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics; those that are torn or damaged are left out."""
    return _lines_of_rounds(folder / "metrics.jsonl")


def read_private_log(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's private log that are about a round; damaged ones are left out."""
    return _lines_of_rounds(folder / PRIVATE_LOG)


def _lines_of_rounds(path: Path) -> list[dict[str, Any]]:
    result = []
    for line in read_regular(path).split(b"\n") if path.exists() else ():
        with contextlib.suppress(ValueError, RecursionError):
            data = json.loads(line)
            if isinstance(data, dict) and type(data.get("round")) is int:
                result.append(data)
    return result


@contextlib.contextmanager
def handed_over(settings: Mapping[str, Any], flwr_home: Path) -> Iterator[dict[str, str]]:
    """Write settings to where the ServerApp of this FLWR_HOME finds them; the run config by which.

    The file (0600) is gone afterwards.
    """
    folder = flwr_home / _HANDED_OVER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    name = secrets.token_hex(16)
    path = folder / f"{name}.json"
    path.touch(0o600, exist_ok=False)
    path.write_text(json.dumps(dict(settings)), encoding="utf-8")
    try:
        yield {SETTINGS_FILE: name}
    finally:
        path.unlink(missing_ok=True)


def settings_of(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run: its run config, or, of a deployed run, those in the file it names.

    What has no key of its own in ``pyproject.toml`` stands under ``settings``, as TOML has pairs of
    names and values between braces: ``max-judgements = 100, optimizer = 'adam'``.

    Raises:
        InputError: there is no such file on this machine, or ``settings`` cannot be read.
    """
    if SETTINGS_FILE not in run_config:
        settings = dict(run_config)
        return settings | _named_together(str(settings.pop("settings", "")), settings)
    name, home = str(run_config[SETTINGS_FILE]), os.environ.get("FLWR_HOME", "")
    path = Path(home) / _HANDED_OVER / f"{name}.json"
    settings = read_json(path) if home and re.fullmatch("[0-9a-f]{32}", name) else {}
    if not settings:
        raise InputError(
            f"the settings of this run are not in {path}: a deployed run is started with "
            "`murmuration deploy run`, on the server's machine and by its account"
        )
    return settings


def _named_together(text: str, others: Mapping[str, Any]) -> dict[str, Any]:
    try:
        (named,) = tomllib.loads(f"settings = {{{text}}}").values()
    except ValueError as error:
        raise InputError(
            f'settings={text!r}: {error}; write them as in settings="max-judgements = 100, '
            "optimizer = 'adam'\""
        ) from None
    if twice := sorted({name.replace("_", "-") for name in named} & others.keys()):
        raise InputError(f"settings: {twice[0]} has a key of its own: -c '{twice[0]}=…'")
    return named
