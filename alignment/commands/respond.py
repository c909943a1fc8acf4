"""``murmuration respond``: what a language model writes to many prompts."""

from pathlib import Path
from typing import Annotated

import typer

from murmuration.alignment.commands.sampling import MaxNewTokens, Temperature, TopP, WriterServer
from murmuration.cli.options import (
    PROMPTS,
    PROMPTS_PUBLIC,
    REWARD,
    DrawSeed,
    Generations,
    Limit,
    RewardPrivacy,
    System,
    meaning,
)
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.generation import Sampling
from murmuration.terminal.terminal import Terminal

_DEFAULT = Sampling()


def respond(
    *,
    model: Annotated[
        str,
        typer.Argument(
            help="A model folder, as in RUN/model, or a base; with --writer a model of it."
        ),
    ],
    prompt: Annotated[
        str | None, typer.Option(help="The prompt. What is written to it is printed.")
    ] = None,
    prompts: Annotated[str, typer.Option(help=f"{PROMPTS} With --out.", show_default=False)] = "",
    out: Annotated[
        Path | None,
        typer.Option(help=f"{meaning('out')} A .jsonl file: `prompt`, `response` (and `reward`)."),
    ] = None,
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
    sampling = Sampling(temperature, top_p, max_new_tokens)
    if prompt is not None:
        if prompts or out is not None or limit is not None:
            raise InputError("--prompt is printed: leave out --prompts, --limit and --out")
        if reward is not None or best_of is not None:
            raise InputError("--reward chooses among responses to --prompts, with --out")
        _print_responses(model, prompt, samples, sampling, seed, server=writer, system=system)
        return
    if not prompts or out is None:
        raise InputError("pass --prompt, or --prompts and --out")

    from murmuration.alignment.api.responding import respond as write_responses

    responses = write_responses(
        model,
        prompts,
        out=out,
        limit=limit,
        samples=samples,
        sampling=sampling,
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


def _print_responses(
    model: str,
    prompt: str,
    samples: int,
    sampling: Sampling,
    seed: int,
    *,
    server: str,
    system: str | None,
) -> None:
    from murmuration.alignment.pool import cut_off_text, seeds_of, write_samples, writer_of

    if not prompt.strip():
        raise InputError("--prompt is empty")
    writer = writer_of(model, server, system)
    (responses,) = write_samples(writer, [prompt], sampling, seeds_of(seed, samples))
    for response in responses:
        Terminal(highlight=False).print(response, soft_wrap=True)
    if text := cut_off_text(writer.cut_off, samples, sampling):
        Terminal(stderr=True, highlight=False).print(text, style="dim")
