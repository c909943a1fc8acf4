"""``murmuration respond``: what a language model writes to many prompts."""

from pathlib import Path
from typing import Annotated

import typer

from murmuration.cli.models.sampling import MaxNewTokens, System, Temperature, TopP, WriterServer
from murmuration.cli.options import (
    PROMPTS_PUBLIC,
    REWARD,
    DrawSeed,
    Generations,
    Limit,
    Prompts,
    RewardPrivacy,
    meaning,
)
from murmuration.preference.language.generation import Sampling

_DEFAULT = Sampling()


def respond(
    model: Annotated[
        str,
        typer.Argument(
            help="A model folder, as in RUN/model, or a base; with --writer a model of it."
        ),
    ],
    prompts: Prompts,
    out: Annotated[
        Path,
        typer.Option(help=f"{meaning('out')} A .jsonl file: `prompt`, `response` (and `reward`)."),
    ],
    limit: Limit = None,
    samples: Generations = 1,
    temperature: Temperature = _DEFAULT.temperature,
    top_p: TopP = _DEFAULT.top_p,
    max_new_tokens: MaxNewTokens = _DEFAULT.max_new_tokens,
    seed: DrawSeed = 0,
    writer: WriterServer = "",
    system: System = None,
    reward: Annotated[
        str | None,
        typer.Option(
            help=f"{REWARD} Of --best-of responses to each prompt only the one that it likes best "
            "is written.",
            show_default=False,
        ),
    ] = None,
    best_of: Annotated[
        int | None,
        typer.Option(
            help="With --reward: number of responses to choose from.", show_default=False, min=1
        ),
    ] = None,
    reward_privacy: RewardPrivacy = "",
    model_privacy: Annotated[
        str, typer.Option(help="As --reward-privacy, for the model.", show_default=False)
    ] = "",
    prompts_public: Annotated[
        bool, typer.Option("--prompts-public", help=f"{PROMPTS_PUBLIC} For --reward.")
    ] = False,
) -> None:
    """Write responses to prompts with a causal language model."""
    from murmuration.api.responding import respond as write_responses

    responses = write_responses(
        model,
        prompts,
        out=out,
        limit=limit,
        samples=samples,
        sampling=Sampling(temperature, top_p, max_new_tokens),
        seed=seed,
        writer=writer,
        system=system,
        reward=reward,
        best_of=best_of,
        reward_privacy=reward_privacy,
        model_privacy=model_privacy,
        prompts_public=prompts_public,
        progress=True,
    )
    print(responses)
