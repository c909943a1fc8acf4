"""A data set of synthetic preferences as it is saved: rows for any trainer, and what they stand on.

    train.jsonl     the rows, in the preference format of TRL, with scores beside them
    README.md       the card: what users were promised, how rows were made, how to train on them
    privacy.json    the runs that reward and policy came from (``server.lineage``); their ledgers
                    lie beside it

The folder is there whole or not at all. A later model that is trained on the rows stands on the
same runs, and on no more: whoever has the folder can show it by the ledgers in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmuration.alignment.synthesis import Preferences
from murmuration.alignment.writing import json_lines, writing
from murmuration.preference.data.rows import InputError
from murmuration.preference.model_folder import replace_folder
from murmuration.privacy.promise import Promise
from murmuration.reporting.jinja import markdown_templates
from murmuration.reporting.promise import details, paragraphs, table
from murmuration.server.lineage import PRIVATE_RUNS, ROWS, files_of, mark_of

FOR_EVER = (
    "Making the pairs and training on them is post-processing of released models: whoever has "
    "these rows may train on them with any trainer, as often and for as long as they like, and "
    "publish what comes out. It costs no user of these runs any further epsilon."
)


@dataclass(frozen=True)
class Made:
    """How pairs were made, for the card.

    Attributes:
        reward: SHA-256 of the reward's folder, ``policy`` of the policy; empty of a server's.
        policy_name: of the policy on a hub; empty for a folder.
        made_from: which file the policy's base was converted from, in a sentence; or empty.
        source: what prompts are, in words that name no folder.
        prompts: how many; ``samples`` answers to each.
        settings: options and their values, as they were given.
    """

    reward: str
    policy: str
    policy_name: str
    made_from: str
    source: str
    prompts: int
    samples: int
    settings: Mapping[str, Any]


def save(folder: Path, found: Preferences, made: Made, promise: Promise) -> None:
    """Write the folder, whole or not at all.

    Raises:
        InputError: something is there already, it cannot be written, or there are no pairs.
    """
    if not found.rows:
        raise InputError(
            f"no pair is left of {made.prompts:,} prompts ({_left_out(found)}): take more "
            "--num-generations, or a higher --temperature"
        )

    def write(new: Path) -> None:
        mark = mark_of(promise)
        (new / ROWS).write_bytes(json_lines(row | mark for row in found.rows))
        (new / "README.md").write_text(card(found, made, promise), encoding="utf-8")
        for name, content in files_of(promise, new, details(promise)).items():
            (new / name).write_bytes(content)

    with writing(f"--out {folder}"):
        replace_folder(folder, write, lambda _: None, overwrite=False)


def card(found: Preferences, made: Made, promise: Promise) -> str:
    """README.md of a data set."""
    tags = ["preference", "dpo", "synthetic", "trl", "murmuration"]
    return _CARD.render(
        tags=["differential-privacy", *tags] if promise.runs else tags,
        data_file=ROWS,
        private_runs=PRIVATE_RUNS,
        rows=len(found.rows),
        made=made,
        promise=paragraphs(promise),
        table=table(details(promise)),
        for_ever=FOR_EVER,
        left_out=_left_out(found),
    )


_CARD = markdown_templates(Path(__file__).with_name("templates")).get_template("data_set_card.md")


def _left_out(found: Preferences) -> str:
    return ", ".join(f"{count:,} pairs of {why}" for why, count in found.left_out.items())
