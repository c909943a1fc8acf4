"""``murmuration synthesize``: preferences of a private reward, as data that any trainer may use."""

import json
from pathlib import Path
from typing import Annotated

import click
import typer

from murmuration.cli.models.sampling import MaxNewTokens, Temperature, TopP
from murmuration.cli.options import (
    GENERATIONS,
    LIMIT,
    PROMPTS,
    PROMPTS_PUBLIC,
    REWARD,
    REWARD_PRIVACY,
    Json,
    meaning,
)
from murmuration.preference.data.rows import InputError
from murmuration.preference.language.generation import PublicSeed, Sampling, Writer
from murmuration.reporting.figures import counted
from murmuration.reporting.live.tables import console

_DEFAULT = Sampling()


def synthesize(
    reward: Annotated[str, typer.Option(help=REWARD)],
    policy: Annotated[
        str,
        typer.Option(
            "--generator", "--policy", help="The model that writes answers: a folder, or a base."
        ),
    ],
    prompts: Annotated[
        str,
        typer.Option(help=PROMPTS),
    ],
    out: Annotated[Path, typer.Option(help=f"{meaning('out')} The folder.")],
    limit: Annotated[
        int | None,
        typer.Option(
            help=rf"{LIMIT} \[default: all; 2000 of the population]",
            show_default=False,
            min=1,
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option("--num-generations", "--samples", help=GENERATIONS, min=2)
    ] = 4,
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
            "--labels",
            help="hard: the higher score is chosen. sampled: by the odds that the reward gives.",
            click_type=click.Choice(["hard", "sampled"]),
        ),
    ] = "hard",
    temperature: Temperature = _DEFAULT.temperature,
    top_p: TopP = _DEFAULT.top_p,
    max_new_tokens: MaxNewTokens = _DEFAULT.max_new_tokens,
    seed: Annotated[
        int,
        typer.Option(
            help=f"{meaning('seed')} Of the population's prompts and of all draws.", min=0
        ),
    ] = 0,
    reward_privacy: Annotated[
        str,
        typer.Option(
            help=REWARD_PRIVACY,
            show_default=False,
        ),
    ] = "",
    policy_privacy: Annotated[
        str,
        typer.Option(
            "--generator-privacy",
            "--policy-privacy",
            help="As --reward-privacy, for --generator.",
            show_default=False,
        ),
    ] = "",
    prompts_public: Annotated[
        bool,
        typer.Option(
            "--prompts-public",
            help=PROMPTS_PUBLIC,
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Let a policy answer public prompts, and a private reward say which answers are better.

    Writes a data set of preferences for any trainer, with a card that says what users were
    promised: post-processing of the reward, at no further epsilon. Nobody's data are read.
    """
    from murmuration.alignment.data_set import FOR_EVER, Made, save
    from murmuration.alignment.pool import draw
    from murmuration.alignment.public_prompts import public_prompts
    from murmuration.alignment.synthesis import Synthesis, preferences
    from murmuration.preference.language.checkpoint import digest_of
    from murmuration.preference.language.loading import contents_of, resolve_base
    from murmuration.preference.language.reward import read_about
    from murmuration.preference.reward import RewardModel
    from murmuration.reporting.promise import paragraphs
    from murmuration.server.lineage import lineage_of_saved
    from murmuration.sims.population.prompts import PREFIX

    sampling = Sampling(temperature, top_p, max_new_tokens)
    if out.exists() or out.is_symlink():
        raise InputError(f"--out {out} is there already; choose another folder")
    reward = str(Path(reward).expanduser())
    try:
        judge = RewardModel.load(reward)
    except InputError as error:
        raise InputError(f"--reward {error}") from None
    promise = lineage_of_saved("--reward", reward, "--reward-privacy", reward_privacy)
    promise |= lineage_of_saved(
        "--generator", policy, "--generator-privacy", policy_privacy, may_be_base=True
    )
    asked = public_prompts(
        prompts, limit, seed, models=(reward, policy), declared_public=prompts_public
    )
    odds = judge.model if isinstance(judge, RewardModel) else read_about(Path(reward))["model"]
    how = Synthesis(pairs, labels, PublicSeed(seed), odds)
    with console(stderr=True).status("loading") as status:

        def progress(done: int, of: int) -> None:
            status.update(f"{done:,} of {of:,} answers" if done < of else "scoring")

        writer = Writer.load(policy)
        found = preferences(draw(writer, judge, asked, samples, sampling, seed, progress), how)
        path = resolve_base(policy)
        given = {"pairs": pairs, "labels": labels, "temperature": temperature, "top-p": top_p}
        named = f"fresh prompts of the embedded population ({prompts})"
        made = Made(
            reward=digest_of(Path(reward)),
            policy=contents_of(path).digest,
            policy_name="" if Path(path).is_dir() else path,
            source=named if prompts.startswith(PREFIX) else "public prompts",
            prompts=len(asked),
            samples=samples,
            settings=given | {"max-new-tokens": max_new_tokens, "seed": seed},
        )
        save(out, found, made, promise)
    if as_json:
        print(
            json.dumps(
                {
                    "out": str(out),
                    "pairs": len(found.rows),
                    "left_out": dict(found.left_out),
                    "promise": promise.to_json(),
                }
            )
        )
        return
    left_out = ", ".join(f"{count:,} of {why}" for why, count in found.left_out.items())
    print(f"wrote {counted(len(found.rows), 'pair')} to {out}; left out: {left_out}")
    for line in [*paragraphs(promise), FOR_EVER]:
        print(line.replace("**", ""))
