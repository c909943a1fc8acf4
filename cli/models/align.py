"""``murmuration align``: from a private reward, or from judgements, to a policy that climbs it."""

import json
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from rich.markup import escape

from murmuration.alignment.align import WHY, Alignment, Demonstrations
from murmuration.alignment.align import align as aligned
from murmuration.alignment.evaluation import POPULATION
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
from murmuration.preference.data.judgements import InputError
from murmuration.preference.language.generation import PublicSeed, Sampling
from murmuration.reporting.live.tables import console, table_of
from murmuration.reporting.live.tracking import tracked

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
    from murmuration.alignment.public_prompts import public_prompts, refuse_private_of
    from murmuration.alignment.report import card, draw, learnt_card
    from murmuration.reporting.promise import details
    from murmuration.server.lineage import files_of, lineage_of_rows, lineage_of_saved, mark_of

    if (reward is None) == (judgements is None):
        raise InputError("give --reward, a model's folder, or --reward-data to train one first")
    with (
        console(stderr=True).status("") as status,
        tracked(out, report_to, run_name, resume=resume, step="step"),  # before a reward is trained
    ):
        if judgements is not None:
            reward = _reward(judgements, epsilon, delta, out, resume, status.update)
        assert reward is not None
        models = [reward, base]
        of_base = lineage_of_saved("--base", base, "--base-privacy", base_privacy, may_be_base=True)
        if sft:
            of_rows = lineage_of_rows("--sft", sft, "--sft-privacy", sft_privacy)
            of_base |= of_rows if of_rows.runs else of_rows.declared_public()
        elif sft_privacy:
            raise InputError("--sft-privacy is for rows of --sft")
        promise = of_base | lineage_of_saved(
            "--reward", str(reward), "--reward-privacy", reward_privacy
        )
        true = _truth(truth, prompts)
        if true not in ("", POPULATION):  # it has a say in when training ends and what is saved
            models.append(true)
            promise |= lineage_of_saved("--truth", true, "--truth-privacy", truth_privacy)
        elif truth_privacy:
            raise InputError("--truth-privacy is for a --truth that is a model's folder")
        asked = Alignment(
            reward=str(reward.expanduser().absolute()),
            base=base,
            prompts=prompts,
            truth=true,
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
            seed=PublicSeed(seed),
        )

        def said(text: str) -> None:
            status.update(text)
            if text.startswith("step ") and "reward" in text:
                status.console.print(text, markup=False)

        found = public_prompts(prompts, limit, seed, models, declared_public=prompts_public)
        shown = None
        if sft:
            rows = asked.supervised.rows()
            asked_of = [prompt for prompt, _ in rows]
            refuse_private_of(asked_of, sft, models, prompts_public, option="--sft")
            shown = Demonstrations(
                rows,
                lambda found: learnt_card(found, of_base),
                lambda folder: files_of(of_base, folder, details(of_base)),
            )
        result = aligned(
            asked,
            found,
            out,
            demonstrations=shown,
            resume=resume and (judgements is None or out.exists()),  # or it ended before
            card=lambda result: card(result, promise),
            beside=lambda folder: files_of(promise, folder, details(promise)),
            promise=promise.to_json(),
            mark=mark_of(promise),
            said=said,
        )
    draw(out)
    if as_json:
        print(json.dumps(result, allow_nan=False))
        return
    _tell(result, out)


def _truth(given: str | None, prompts: str) -> str:
    if given is None:
        return POPULATION if prompts.startswith("population:") else ""
    if given in ("none", POPULATION):
        return given.replace("none", "")
    return str(Path(given).expanduser().absolute())


def _reward(
    judgements: str,
    epsilon: float | None,
    delta: str,
    out: Path,
    resume: bool,
    said: Any,
) -> Path:
    """A private reward, trained into OUT's neighbour by secret coins and noise: it has no seed; or
    found there, if it was trained alike."""
    from murmuration.api.training import train

    if epsilon is None:
        raise InputError("--reward-data needs --epsilon: what the reward may cost a user")
    run = out.with_name(out.name + "-reward")
    finished = (run / "result.json").exists()  # and is refused if it had other settings
    said(escape(f"training a reward at epsilon {epsilon:g} into {run}"))
    data = {} if judgements == "population" else {"data": judgements}
    train(
        strategy="uls",
        epsilon=epsilon,
        delta=delta,
        rounds=200,
        out=run,
        resume=finished or (resume and run.exists()),
        **data,
    )
    return run / "model"


def _tell(result: dict[str, Any], out: Path) -> None:
    headings = {
        "": "",
        "step": "step",
        "proxy": "reward",
        "kl": result["kl_is"],
        "truth": "true reward",
        "unreadable": "cannot be read",
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
