"""``murmuration align``: from a private reward, or from judgements, to a policy that climbs it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from murmuration.alignment.align import WHY, Alignment
from murmuration.alignment.reinforce import METHODS, OPTIMIZERS, Steps
from murmuration.alignment.rewards import LENGTHS, Guards
from murmuration.alignment.supervised import Supervised
from murmuration.cli.models.sampling import MaxNewTokens, Temperature, TopP
from murmuration.cli.options import (
    GENERATIONS,
    LIMIT,
    PROMPTS,
    PROMPTS_PUBLIC,
    REWARD,
    REWARD_PRIVACY,
    Json,
    ReportTo,
    RunName,
    help_of,
    meaning,
)
from murmuration.preference.language.generation import Sampling
from murmuration.reporting.live.tables import console, table_of

_STEPS, _GUARDS, _SAMPLING, _ALIGNMENT = Steps(), Guards(), Sampling(), Alignment("", "", "")
_SUPERVISED, _LEARN = Supervised(), "Demonstrations first"
_CLIMB, _GUARD = "Training", "Guards against gaming the reward"
_TRAINED, _LOOKED = "What is trained", "How it is evaluated"


def align(
    base: Annotated[
        str,
        typer.Option(help=f"{meaning('base')} The policy to start from, which is the reference."),
    ],
    prompts: Annotated[
        str,
        typer.Option(help=f"{PROMPTS} Public ones."),
    ],
    out: Annotated[
        Path, typer.Option(help=f"{meaning('out')} Folder for the policy, its report and its card.")
    ],
    reward: Annotated[Path | None, typer.Option(help=REWARD)] = None,
    judgements: Annotated[
        str | None,
        typer.Option(
            "--reward-data",
            "--judgements",
            help="Instead of --reward: train one first on this data (or `population`), into "
            "the folder OUT-reward, by `uls` over 200 rounds.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help=f"{meaning('epsilon')} Of that reward.")
    ] = None,
    delta: Annotated[str, typer.Option(help=f"{meaning('delta')} Of that reward.")] = "1e-5",
    limit: Annotated[int, typer.Option(help=LIMIT, min=2)] = 1000,
    prompts_public: Annotated[
        bool,
        typer.Option(
            "--prompts-public",
            help=f"{PROMPTS_PUBLIC} Those of --sft, too.",
        ),
    ] = False,
    reward_privacy: Annotated[
        str,
        typer.Option(help=REWARD_PRIVACY),
    ] = "",
    base_privacy: Annotated[str, typer.Option(help=help_of("base_privacy"))] = "",
    truth_privacy: Annotated[
        str, typer.Option(help="As --reward-privacy, for a --truth that is a model's folder.")
    ] = "",
    sft: Annotated[
        str,
        typer.Option(
            help="Public demonstrations to learn first: a file (or other source) with `prompt` and "
            "`response` (or `completion`) in each row, or `messages`.",
            show_default=False,
            rich_help_panel=_LEARN,
        ),
    ] = "",
    sft_privacy: Annotated[
        str,
        typer.Option(
            help="As --reward-privacy, for rows of --sft that models of private runs wrote.",
            rich_help_panel=_LEARN,
        ),
    ] = "",
    sft_epochs: Annotated[
        int, typer.Option(help="Passes over the demonstrations.", rich_help_panel=_LEARN)
    ] = _SUPERVISED.epochs,
    sft_batch: Annotated[
        int,
        typer.Option(
            "--sft-batch-size",
            "--sft-batch",
            help="Demonstrations in a step.",
            rich_help_panel=_LEARN,
        ),
    ] = _SUPERVISED.batch,
    sft_learning_rate: Annotated[
        float,
        typer.Option(help="Largest learning rate for demonstrations.", rich_help_panel=_LEARN),
    ] = _SUPERVISED.rate,
    method: Annotated[
        str,
        typer.Option(
            help="Policy-gradient method.",
            click_type=click.Choice(METHODS),
            rich_help_panel=_CLIMB,
        ),
    ] = _STEPS.method,
    steps: Annotated[
        int, typer.Option(help="Training steps.", rich_help_panel=_CLIMB)
    ] = _STEPS.steps,
    batch: Annotated[
        int,
        typer.Option(
            "--batch-size",
            "--batch",
            help="Batch size of a step. In answers.",
            rich_help_panel=_CLIMB,
        ),
    ] = _STEPS.batch,
    answers: Annotated[
        int,
        typer.Option("--num-generations", "--answers", help=GENERATIONS, rich_help_panel=_CLIMB),
    ] = _STEPS.answers,
    learning_rate: Annotated[
        float,
        typer.Option(
            help=f"{meaning('learning_rate')} Of the LoRA layers.", rich_help_panel=_CLIMB
        ),
    ] = _STEPS.rate,
    beta: Annotated[
        float,
        typer.Option(
            "--kl-coef",
            "--beta",
            help="Penalty for each nat of KL divergence.",
            rich_help_panel=_CLIMB,
        ),
    ] = _STEPS.beta,
    optimizer: Annotated[
        str,
        typer.Option(
            help="Optimizer.", click_type=click.Choice(OPTIMIZERS), rich_help_panel=_CLIMB
        ),
    ] = _STEPS.optimizer,
    clip: Annotated[
        bool,
        typer.Option(
            "--clip-rewards/--no-clip-rewards",
            "--clip/--no-clip",
            help="Clip rewards to the range of the reference's answers.",
            rich_help_panel=_GUARD,
        ),
    ] = _GUARDS.clip,
    length: Annotated[
        str,
        typer.Option(
            "--length-control",
            "--length",
            help="`penalise`: subtract for answers longer than the reference's. `match`: subtract "
            "what length alone explains.",
            click_type=click.Choice(LENGTHS),
            rich_help_panel=_GUARD,
        ),
    ] = _GUARDS.length,
    length_penalty: Annotated[
        float,
        typer.Option(help="`penalise`: subtracted for each doubling.", rich_help_panel=_GUARD),
    ] = _GUARDS.length_penalty,
    pessimism: Annotated[
        float,
        typer.Option(
            help="Subtracted for answers as unusual as the reference's are on average.",
            rich_help_panel=_GUARD,
        ),
    ] = _GUARDS.pessimism,
    kl_budget: Annotated[
        float,
        typer.Option(
            help="KL divergence, in nats, at which training ends; 0: no limit.",
            rich_help_panel=_GUARD,
        ),
    ] = _ALIGNMENT.kl_budget,
    truth: Annotated[
        str | None,
        typer.Option(
            help="A true reward to compare with: `population`, another reward model's folder, or "
            "`none`. \\[default: population, of its own prompts]",
            show_default=False,
            rich_help_panel=_LOOKED,
        ),
    ] = None,
    evaluate_every: Annotated[
        int, typer.Option(help="Steps between evaluations.", rich_help_panel=_LOOKED)
    ] = _ALIGNMENT.evaluate_every,
    evaluate_on: Annotated[
        int, typer.Option(help="Prompts held out for evaluation.", rich_help_panel=_LOOKED)
    ] = _ALIGNMENT.evaluate_on,
    temperature: Temperature = _SAMPLING.temperature,
    top_p: TopP = _SAMPLING.top_p,
    max_new_tokens: MaxNewTokens = _SAMPLING.max_new_tokens,
    lora_rank: Annotated[
        int, typer.Option(help=help_of("lora_rank"), rich_help_panel=_TRAINED)
    ] = _ALIGNMENT.lora_rank,
    lora_alpha: Annotated[
        int,
        typer.Option(
            help=help_of("lora_alpha"),
            rich_help_panel=_TRAINED,
        ),
    ] = _ALIGNMENT.lora_alpha,
    lora_targets: Annotated[
        str,
        typer.Option(
            help=help_of("lora_targets"),
            rich_help_panel=_TRAINED,
        ),
    ] = _ALIGNMENT.lora_targets,
    max_tokens: Annotated[
        int, typer.Option(help=help_of("max_tokens"), rich_help_panel=_TRAINED)
    ] = _ALIGNMENT.max_tokens,
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
    run_name: RunName = None,
    as_json: Json = False,
) -> None:
    """Align a language model with a private reward, on public prompts: no further epsilon.

    A policy that is trained on a reward can game it: watch the true reward, which needs --truth.
    """
    from murmuration.api.aligning import align as align_policy

    policy = align_policy(
        reward,
        base=base,
        prompts=prompts,
        out=out,
        judgements=judgements,
        epsilon=epsilon,
        delta=delta,
        limit=limit,
        prompts_public=prompts_public,
        reward_privacy=reward_privacy,
        base_privacy=base_privacy,
        truth_privacy=truth_privacy,
        sft_privacy=sft_privacy,
        truth=truth,
        supervised=Supervised(sft, sft_epochs, sft_batch, sft_learning_rate),
        steps=Steps(method, steps, batch, answers, learning_rate, beta, optimizer),
        sampling=Sampling(temperature, top_p, max_new_tokens),
        guards=Guards(clip, length, length_penalty, pessimism),
        lora_rank=lora_rank,
        lora_alpha=lora_alpha,
        lora_targets=lora_targets,
        max_tokens=max_tokens,
        evaluate_every=evaluate_every,
        evaluate_on=evaluate_on,
        kl_budget=kl_budget,
        seed=seed,
        resume=resume,
        progress=True,
        report_to=report_to,
        run_name=run_name,
    )
    if as_json:
        print(json.dumps(policy.result, allow_nan=False))
        return
    _tell(policy.result, out)


def _tell(result: Mapping[str, Any], out: Path) -> None:
    headings = {
        "": "",
        "step": "step",
        "proxy": "reward",
        "kl": result["kl_is"],
        "truth": "true reward",
        "unreadable": "invalid generations",
        "words": "words",
    }
    rows = [
        {"": name, **{key: result[name][key] for key in headings if key}}
        for name in ("reference", "policy")
    ]
    console().print(table_of(rows, headings))
    if result["policy"]["proxy"] <= 0:
        print("the policy's reward is no better than the base's: it learned nothing that helps")
    print(f"{WHY[result['stopped']]}; the policy of step {result['saved_step']} is in {out}/model")
