"""``murmuration align``: from a private reward, or from judgements, to a policy that climbs it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from murmuration.alignment.commands.alignment_options import (
    alignment_keywords,
    alignment_parameters,
)
from murmuration.alignment.report import summary
from murmuration.cli.options import (
    LIMIT,
    PROMPTS,
    PROMPTS_PUBLIC,
    REWARD,
    REWARD_PRIVACY,
    Json,
    ReportTo,
    System,
    add_parameters,
    help_of,
    meaning,
    print_json,
)
from murmuration.terminal.tables import console


def align(
    *,
    base: Annotated[
        str,
        typer.Option(help=f"{meaning('base')} The policy to start from, which is the reference."),
    ],
    prompts: Annotated[str, typer.Option(help=f"{PROMPTS} Public ones.")],
    out: Annotated[
        Path, typer.Option(help=f"{meaning('out')} Folder for the policy, its report and its card.")
    ],
    reward: Annotated[Path | None, typer.Option(help=REWARD)] = None,
    judgements: Annotated[
        str | None,
        typer.Option(
            "--reward-data",
            help="Instead of --reward: train one first on this data (or `population`), into "
            "the folder OUT-reward, by `uls` over 200 rounds.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help=f"{meaning('epsilon')} Of that reward.")
    ] = None,
    delta: Annotated[str, typer.Option(help=f"{meaning('delta')} Of that reward.")] = "1e-5",
    features: Annotated[
        str, typer.Option(help=f"{help_of('features')} Of that reward.")
    ] = "hashing",
    users: Annotated[
        int, typer.Option(help=f"{meaning('users')} Of that reward.", min=0, show_default=False)
    ] = 0,
    chosen_from_data: Annotated[
        bool,
        typer.Option("--chosen-from-data", help=f"{meaning('chosen_from_data')} Of that reward."),
    ] = False,
    limit: Annotated[int, typer.Option(help=LIMIT, min=2)] = 1000,
    prompts_public: Annotated[
        bool, typer.Option("--prompts-public", help=f"{PROMPTS_PUBLIC} Those of --sft, too.")
    ] = False,
    reward_privacy: Annotated[str, typer.Option(help=REWARD_PRIVACY)] = "",
    base_privacy: Annotated[str, typer.Option(help=help_of("base_privacy"))] = "",
    truth_privacy: Annotated[
        str, typer.Option(help="As --reward-privacy, for a --truth that is a model's folder.")
    ] = "",
    system: System = None,
    seed: Annotated[
        int,
        typer.Option(
            help=f"{meaning('seed')} Of prompts' order and answers; never of a reward's noise or "
            "cohorts.",
            min=0,
        ),
    ] = 0,
    resume: Annotated[bool, typer.Option("--resume", help=help_of("resume"))] = False,
    report_to: ReportTo = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Align a language model with a private reward.

    On public prompts it costs no further epsilon. A policy that is trained on a reward can game it:
    watch the true reward, which needs --truth.
    """
    from murmuration.alignment.api.aligning import align as align_policy

    run = align_policy(
        reward,
        base=base,
        prompts=prompts,
        out=out,
        judgements=judgements,
        epsilon=epsilon,
        delta=delta,
        features=features,
        users=users,
        chosen_from_data=chosen_from_data,
        limit=limit,
        prompts_public=prompts_public,
        reward_privacy=reward_privacy,
        base_privacy=base_privacy,
        truth_privacy=truth_privacy,
        system=system,
        seed=seed,
        resume=resume,
        progress=True,
        report_to=report_to,
        **alignment_keywords(settings),
    )
    if as_json:
        print_json(run.result)
    else:
        console().print(summary(run.result, out))


add_parameters(align, alignment_parameters(), before="seed")
