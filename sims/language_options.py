"""Options of ``murmuration run`` that are about a language model."""

from typing import Annotated

import click

from preference.language_base import TRAINED
from preference.tasks import TASKS
from sims.run_options import option

Base = Annotated[
    str | None,
    option("A language model to train (see --task): a folder, or a hub name."),
]
Train = Annotated[
    str | None,
    option("What of --base is trained. [default: lora]", click_type=click.Choice(TRAINED)),
]
LoraRank = Annotated[int | None, option("Rank of LoRA. [default: 16]")]
LoraTargets = Annotated[
    str | None,
    option("Layers that LoRA changes, comma-separated. [default: by architecture]"),
]
MaxTokens = Annotated[
    int | None,
    option(
        "Most tokens of prompt and response, where prompts are cut in front, or of a window of a "
        "text. [default: 256]"
    ),
]
BatchTokens = Annotated[
    int | None,
    option("Tokens of a user that are computed at a time. [default: as suits the device]"),
]
BatchUsers = Annotated[
    bool | None,
    option(
        "Let nodes compute several users at once (language models; a GPU). That no user moves "
        "the others' vectors is then measured, not so by construction.",
        "--batch-users",
    ),
]
UserMemory = Annotated[
    int | None,
    option("--batch-users: MiB for the gradients of single users, at a time. [default: 512]"),
]
Task = Annotated[
    str | None,
    option(
        "reward: from judgements. text: the next token of users' own texts (user_id, text). sft: "
        "that of the responses in judgements. [default: reward]",
        click_type=click.Choice(TASKS),
    ),
]
AsPublished = Annotated[
    bool | None,
    option("sft: learn chosen responses only. Looks at labels.", "--as-published"),
]
