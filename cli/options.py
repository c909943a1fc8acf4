"""Options that several commands have; of no strategy, as in ``cli.about_data``.

One name has one meaning, unit and type in every command: its help begins with the same sentence,
and what a command adds stands behind it.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from murmuration.privacy.strict_json import strict_json
from murmuration.strategies.settings.declaration import OUTPUT, about, declared
from murmuration.strategies.settings.run import Settings

_HELP = {field.name: about(field).help for field in declared(Settings)}
#: What help begins with, of options that are no settings.
JSON = "Print the result as one JSON line."
WHERE = "Where it runs."
#: Panel of how a language model writes.
WRITING = "How it writes"
GENERATIONS = "Answers to each prompt."
LIMIT = "How many prompts, from the first."
PROMPTS = (
    "A file (or other source, as --data of a run) with `prompt` in each row, or `population:seen` "
    "or `population:unseen` for fresh ones of the embedded population, or `murmuration.questions` "
    "for 300 debatable ones."
)
PROMPTS_PUBLIC = "Declare that the prompts were public before any user saw them."
REWARD = "A saved reward model, as in RUN/model."
REWARD_PRIVACY = (
    "Privacy cost of the reward, where its folder does not record it: `public`, or the ledgers of "
    "its runs, comma-separated."
)
AUDIT = "A file with what `murmuration audit TARGET --json` printed."

Prompts = Annotated[str, typer.Option(help=PROMPTS)]
Limit = Annotated[
    int | None,
    typer.Option(
        help=rf"{LIMIT} \[default: all; 2000 of the population]", show_default=False, min=1
    ),
]
Generations = Annotated[int, typer.Option("--num-generations", help=GENERATIONS, min=1)]
RewardPrivacy = Annotated[str, typer.Option(help=REWARD_PRIVACY, show_default=False)]
Json = Annotated[bool, typer.Option("--json", help=JSON)]
#: Of commands that write ``metrics.jsonl``.
ReportTo = Annotated[
    str | None,
    typer.Option(
        help="MODULE:FUNCTION that is called with each round's number and its metrics for release "
        r"(metrics.jsonl), to send them to a tracker. \[default: none]",
        metavar="MODULE:FUNCTION",
        show_default=False,
        rich_help_panel=OUTPUT,
    ),
]


def help_of(name: str) -> str:
    """A setting's help without its default, for a command with another default."""
    return _HELP[name].partition("[default")[0].strip()


def meaning(name: str) -> str:
    """The first sentence of a setting's help, for a command that adds its own."""
    return f"{help_of(name).partition('. ')[0].removesuffix('.')}."


System = Annotated[
    str | None,
    typer.Option(
        help=f"{meaning('system')} '': as the chat template does by itself. "
        r"\[default: that which a model was trained with]",
        show_default=False,
        rich_help_panel=WRITING,
    ),
]
DrawSeed = Annotated[
    int,
    typer.Option(help=f"{meaning('seed')} Of the population's prompts and of all draws.", min=0),
]


def add_parameters(
    command: Callable[..., Any], parameters: Sequence[inspect.Parameter], before: str = ""
) -> None:
    """Give a command more parameters, whose values it takes as keywords that it does not name.

    Typer reads options from the signature.

    Args:
        command: a function with ``**`` keywords.
        parameters: keyword-only ones.
        before: the keyword-only parameter before which help lists them; by default all.
    """
    signature = inspect.signature(command)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    place = [p.name for p in own].index(before) if before else 0
    all_ = [*own[:place], *parameters, *own[place:]]
    command.__signature__ = signature.replace(parameters=all_)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in all_}


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    print(strict_json(value))
