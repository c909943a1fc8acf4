"""Check that nobody in ``--test`` is among those who are trained on.

Figures on a test are exact and charged to nobody, because its file is declared public. Where it
holds somebody whom the run protects, they are exact figures of private data.

Users are known by their ids, as everywhere: one id is one person, in whichever file. Two files that
number their people apart from each other, each from 1, look alike; one of them needs other ids. A
deployment's data lie at its nodes, so there nothing can be compared.
"""

import os
from dataclasses import replace
from pathlib import Path

from murmuration.client.store import forget_changed, load
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import Data
from murmuration.preference.data.sources import parse_source
from murmuration.privacy.disclosure import OperatorOnly
from murmuration.server.evaluation import on_bad_rows
from murmuration.strategies.config import RunConfig

#: Whose splits have users of their own.
EMBEDDED = "murmuration.population:"


def check_others(config: RunConfig, data: Data) -> None:
    """InputError if a run's test is its data, or shares users with it."""
    if not config.test:
        return
    split = (
        "leave --test out, and a share of the users is held out by coins (--heldout), or name "
        "judgements of other people: murmuration data FILE --split-users 0.2 --out DIR takes a "
        "share of the users out of a file"
    )
    if _source(config.test) == _source(config.data):
        raise InputError(
            f"--test {config.test} is --data: its figures would be exact figures of the people "
            f"whom the run protects; {split}"
        )
    if config.test.startswith(EMBEDDED) and config.data.startswith(EMBEDDED):
        return
    forget_changed(config.test)
    schema = replace(config.schema, labels="true")
    test = load(config.test, config.columns, on_bad_rows(config), config.task, schema)
    if both := {*test.user_ids} & {*data.user_ids}:
        who = "rows" if config.one_user_per_row else "users"
        count = OperatorOnly(f"{len(both):,} of {len(test.user_ids):,}")
        raise InputError(
            f"--test {config.test} has {who} of --data ({count}): its figures would be exact "
            f"figures of people whom the run protects; {split}. Where one id names different "
            "people in the two files, give those of one file other ids"
        )


def _source(named: str) -> tuple[str, str, str]:
    """A source whichever way its path is written."""
    source = parse_source(named)
    return os.path.realpath(Path(source.name).expanduser()), source.split, source.config
