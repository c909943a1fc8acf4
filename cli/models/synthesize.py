"""``murmuration synthesize``: preferences of a private reward, as data that any trainer may use."""

from pathlib import Path
from typing import Annotated

import click
import typer

from murmuration.cli.models.sampling import MaxNewTokens, System, Temperature, TopP, WriterServer
from murmuration.cli.options import (
    GENERATIONS,
    PROMPTS_PUBLIC,
    REWARD,
    DrawSeed,
    Json,
    Limit,
    Prompts,
    RewardPrivacy,
    meaning,
    print_json,
)
from murmuration.preference.language.generation import Sampling
from murmuration.reporting.figures import counted

_DEFAULT = Sampling()


def synthesize(
    reward: Annotated[str, typer.Option(help=REWARD)],
    policy: Annotated[
        str,
        typer.Option("--generator", help="The model that writes answers: a folder, or a base."),
    ],
    prompts: Prompts,
    out: Annotated[Path, typer.Option(help=f"{meaning('out')} The folder.")],
    limit: Limit = None,
    samples: Annotated[int, typer.Option("--num-generations", help=GENERATIONS, min=2)] = 4,
    pairs: Annotated[
        str,
        typer.Option(
            help="Of a prompt's answers: best and worst, all pairs, or one at random.",
            click_type=click.Choice(["best-worst", "all", "random"]),
        ),
    ] = "best-worst",
    labels: Annotated[
        str,
        typer.Option(
            "--label-draw",
            help="hard: the higher score is chosen. sampled: by the odds that the reward gives.",
            click_type=click.Choice(["hard", "sampled"]),
        ),
    ] = "hard",
    temperature: Temperature = _DEFAULT.temperature,
    top_p: TopP = _DEFAULT.top_p,
    max_new_tokens: MaxNewTokens = _DEFAULT.max_new_tokens,
    seed: DrawSeed = 0,
    writer: WriterServer = "",
    system: System = None,
    reward_privacy: RewardPrivacy = "",
    policy_privacy: Annotated[
        str,
        typer.Option(
            "--generator-privacy",
            help="As --reward-privacy, for --generator.",
            show_default=False,
        ),
    ] = "",
    prompts_public: Annotated[bool, typer.Option("--prompts-public", help=PROMPTS_PUBLIC)] = False,
    as_json: Json = False,
) -> None:
    """Let a reward label a policy's answers to public prompts.

    Writes a data set of preferences for any trainer, with a card that says what users were
    promised: post-processing of the reward, at no further epsilon. Nobody's data are read.
    """
    from murmuration.alignment.data_set import FOR_EVER
    from murmuration.api.synthesizing import synthesize as synthesize_preferences
    from murmuration.reporting.promise import paragraphs

    written = synthesize_preferences(
        reward,
        policy=policy,
        prompts=prompts,
        out=out,
        limit=limit,
        samples=samples,
        pairs=pairs,
        labels=labels,
        sampling=Sampling(temperature, top_p, max_new_tokens),
        seed=seed,
        writer=writer,
        system=system,
        reward_privacy=reward_privacy,
        policy_privacy=policy_privacy,
        prompts_public=prompts_public,
        progress=True,
    )
    if as_json:
        result = {"out": str(out), "pairs": written.pairs, "left_out": dict(written.left_out)}
        result |= {"cut_off": written.cut_off} if written.cut_off else {}
        print_json({**result, "promise": written.promise.to_json()})
        return
    left_out = ", ".join(f"{count:,} of {why}" for why, count in written.left_out.items())
    print(f"wrote {counted(written.pairs, 'pair')} to {out}; left out: {left_out}")
    if written.cut_off:
        print(written.cut_off)
    for line in [*paragraphs(written.promise), FOR_EVER]:
        print(line.replace("**", ""))
