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
        source: what prompts are, in words that name no folder.
        prompts: how many; ``samples`` answers to each.
        settings: options and their values, as they were given.
    """

    reward: str
    policy: str
    policy_name: str
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
    rows, private = len(found.rows), bool(promise.runs)
    policy = f"`{made.policy_name}`, " if made.policy_name else ""
    policy += f"SHA-256 `{made.policy}`" if made.policy else "which a server ran: no digest"
    settings = ", ".join(f"`--{name} {value}`" for name, value in made.settings.items())
    tags = ["differential-privacy"] * private + [
        "preference",
        "dpo",
        "synthetic",
        "trl",
        "murmuration",
    ]
    head = [
        "---",
        "pretty_name: Synthetic preferences from a private reward model",
        "task_categories:",
        "- text-generation",
        "tags:",
        *(f"- {tag}" for tag in tags),
        "configs:",
        "- config_name: default",
        f"  data_files: {ROWS}",
        "---",
    ]
    policy_said = (
        "The policy counts, too, where its folder names runs. What else it, or what it began from, "
        "was trained on is outside these figures."
    )
    body = [
        "# Synthetic preferences from a private reward model",
        f"{rows:,} pairs of answers to {made.source}. A language model wrote the answers, and a "
        "reward model, learnt from a crowd's judgements, says which of two is better: no person "
        "judged these pairs.",
        "## Privacy",
        *(text.replace("<", "&lt;").replace("`", "'") for text in paragraphs(promise)),
        table(details(promise)),
        FOR_EVER,
        policy_said + " The prompts must have been public: whoever was shown them as their own is "
        "not protected by these figures.",
        "`privacy.json` names the runs, with the SHA-256 of the rows, and their ledgers lie beside "
        "it. A model that is trained on these rows stands on the same runs: keep these files with "
        "it, or name the ledgers where it is trained on again (`--base-privacy`).",
        "## Rows",
        f"`{ROWS}`, one row a pair: `prompt`, `chosen`, `rejected`, and the reward's "
        "`score_chosen` and `score_rejected`, of which only differences within a prompt mean "
        f"anything; `{PRIVATE_RUNS}` names the private runs that they stand on. There is no user "
        "column: nobody's judgement is among them, so they are for "
        "trainers of one party, and not for `murmuration run --data`, which protects users.",
        "```python\n"
        "from datasets import load_dataset\n"
        "from trl import DPOConfig, DPOTrainer\n\n"
        'rows = load_dataset("path/to/this/folder", split="train")\n'
        'DPOTrainer(model, args=DPOConfig(output_dir="out"), train_dataset=rows,\n'
        "           processing_class=tokenizer).train()\n"
        "```",
        "## How they were made",
        f"{made.samples} answers to each of {made.prompts:,} prompts ({settings}) by the policy "
        f"{policy}; scores of the reward with SHA-256 `{made.reward}`. Left "
        f"out: {_left_out(found)}.",
        "## Limits",
        "Labels are a reward model's opinion, which knows the majority's taste with the noise of "
        "its privacy, and not the truth. A policy that is trained on them can learn what the "
        "reward mistakes for good: check what comes out by other means.",
    ]
    return "\n".join(head) + "\n\n" + "\n\n".join(body) + "\n"


def _left_out(found: Preferences) -> str:
    return ", ".join(f"{count:,} pairs of {why}" for why, count in found.left_out.items())
