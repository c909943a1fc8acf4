"""``murmuration respond``: what a language model writes to many prompts."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from murmuration.cli.models.sampling import MaxNewTokens, Temperature, TopP
from murmuration.cli.options import (
    GENERATIONS,
    LIMIT,
    PROMPTS,
    PROMPTS_PUBLIC,
    REWARD,
    REWARD_PRIVACY,
    meaning,
)
from murmuration.preference.data.judgements import InputError
from murmuration.preference.language.generation import Sampling, Writer
from murmuration.privacy.durable_files import replace_file
from murmuration.reporting.figures import counted
from murmuration.reporting.live.tables import console
from murmuration.sims.population.prompts import prompts_of

_DEFAULT = Sampling()


def respond(
    model: Annotated[str, typer.Argument(help="A model folder, as in RUN/model, or a base.")],
    prompts: Annotated[
        str,
        typer.Option(help=PROMPTS),
    ],
    out: Annotated[
        Path,
        typer.Option(help=f"{meaning('out')} A .jsonl file: `prompt`, `response` (and `reward`)."),
    ],
    limit: Annotated[
        int | None,
        typer.Option(
            help=rf"{LIMIT} \[default: all; 2000 of the population]",
            show_default=False,
            min=1,
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option("--num-generations", "--samples", help=GENERATIONS, min=1)
    ] = 1,
    temperature: Temperature = _DEFAULT.temperature,
    top_p: TopP = _DEFAULT.top_p,
    max_new_tokens: MaxNewTokens = _DEFAULT.max_new_tokens,
    seed: Annotated[
        int,
        typer.Option(
            help=f"{meaning('seed')} Of the population's prompts and of all draws.", min=0
        ),
    ] = 0,
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
    reward_privacy: Annotated[
        str,
        typer.Option(
            help=REWARD_PRIVACY,
            show_default=False,
        ),
    ] = "",
    model_privacy: Annotated[
        str, typer.Option(help="As --reward-privacy, for the model.", show_default=False)
    ] = "",
    prompts_public: Annotated[
        bool,
        typer.Option(
            "--prompts-public",
            help=f"{PROMPTS_PUBLIC} For --reward.",
        ),
    ] = False,
) -> None:
    """Write responses to prompts with a causal language model."""
    sampling = Sampling(temperature, top_p, max_new_tokens)
    if out.exists():
        raise InputError(f"--out {out} is there already; choose another file")
    if (reward is None) != (best_of is None):
        raise InputError("--reward and --best-of need each other: what chooses, and from how many")
    if reward is not None and best_of is not None:
        if samples > 1:
            raise InputError(
                "--best-of writes one response to each prompt: leave out --num-generations"
            )
        cost = reward_privacy, model_privacy
        _write_best(
            model, (prompts, limit, seed), out, sampling, reward, best_of, cost, prompts_public
        )
        return
    from murmuration.server.lineage import mark_of_model

    asked, mark = prompts_of(prompts, limit, seed), mark_of_model(model)
    with console(stderr=True).status("loading") as status:
        writer, result = Writer.load(model), []
        for sample in range(samples):

            def progress(done: int, of: int, before: int = sample * len(asked)) -> None:
                status.update(f"{before + done:,} of {samples * of:,} responses")

            result.append(writer.write(asked, sampling, (seed, sample), progress))
    rows = (
        {"prompt": prompt, "response": response} | mark
        for prompt, *responses in zip(asked, *result, strict=True)
        for response in responses
    )
    _write(out, rows)
    print(f"wrote {counted(samples * len(asked), 'response')} to {out}")


def _write_best(
    model: str,
    named: tuple[str, int | None, int],
    out: Path,
    sampling: Sampling,
    reward: str,
    best_of: int,
    cost: tuple[str, str],
    declared_public: bool,
) -> None:
    """The response to each prompt, of several, that a reward likes best."""
    from murmuration.alignment.best_of_n import best, kl_bound
    from murmuration.alignment.pool import draw
    from murmuration.alignment.public_prompts import public_prompts
    from murmuration.preference.reward import RewardModel
    from murmuration.reporting.promise import paragraphs
    from murmuration.server.lineage import lineage_of_saved, mark_of

    reward = str(Path(reward).expanduser())
    try:
        judge = RewardModel.load(reward)
    except InputError as error:
        raise InputError(f"--reward {error}") from None
    promise = lineage_of_saved("--reward", reward, "--reward-privacy", cost[0])
    promise |= lineage_of_saved("MODEL", model, "--model-privacy", cost[1], may_be_base=True)
    asked = public_prompts(*named, models=(reward, model), declared_public=declared_public)
    with console(stderr=True).status("loading") as status:

        def progress(done: int, of: int) -> None:
            status.update(f"{done:,} of {of:,} responses" if done < of else "scoring")

        pool = draw(Writer.load(model), judge, asked, best_of, sampling, named[2], progress)
    chosen = best(pool)
    _write(
        out,
        (
            {"prompt": prompt, "response": answers[at], "reward": float(rewards_N[at])}
            | mark_of(promise)
            for prompt, answers, rewards_N, at in zip(
                pool.prompts, pool.answers, pool.rewards_PN, chosen, strict=True
            )
        ),
    )
    mean, first = pool.rewards_PN.max(1).mean(), pool.rewards_PN.mean()
    print(f"wrote the best of {best_of} responses to each of {len(asked):,} prompts to {out}")
    print(f"mean reward {mean:.3f}; of all responses {first:.3f}")
    print(
        f"KL from the model at most ln n - (n - 1)/n = {kl_bound(best_of):.3f} nats a prompt, an "
        "upper bound (Beirami et al. 2024)"
    )
    for line in paragraphs(promise):
        print(line.replace("**", ""))
    print("post-processing of a saved reward: no user's data were read for it")


def _write(out: Path, rows: Iterable[Mapping[str, object]]) -> None:
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        replace_file(out, lines.encode())
    except OSError as error:
        raise InputError(f"--out {out} cannot be written: {error.strerror}") from None
