"""Policies of `align` on people's judgements, against five draws of their base, by gold rewards.

    python examples/align_against_five_draws.py UKP OUT

UKP is the folder that `examples/ukp_judgements.py` makes. OUT/answers has the base's 21 answers to
each question, as `murmuration reproduce arguments` leaves them; policies are kept in OUT/policies.
Three seeds at ε = 3: each a reward on SmolLM2's states, 20 steps of `align`, two answers to each of
150 questions. Two hours of one core.
"""

import json
import sys
from pathlib import Path

import numpy as np

import murmuration
from murmuration.alignment.comparisons.comparison import log_ratios
from murmuration.alignment.reinforce import Steps
from murmuration.preference.data.loading import read_judgements
from murmuration.preference.language.generation import Sampling
from murmuration.preference.language.likelihood import SavedLikelihood
from murmuration.research.reproductions.alignment.argument_pool import requests, written
from murmuration.research.reproductions.alignment.arguments import (
    GROUPS,
    LONGER,
    Plan,
    Pool,
    learned,
    length_alone,
)
from murmuration.research.reproductions.alignment.crossed_draws import CrossedDraws, interval

MET, QUESTIONS, SEEDS, SAMPLES = 5, 150, 3, 2


def made(data: Path, out: Path, seed: int) -> tuple[list, float]:
    """The answers of a policy, and its mean log-ratio to its base."""
    reward, folder, prompts = (out / f"{name}-{seed}" for name in ("reward", "align", "prompts"))
    if not (reward / "result.json").exists():
        murmuration.train(
            str(data / "train.jsonl"), out=reward, features="smollm2", rounds=200, cohort=540,
            heldout=0.0, epsilon=3.0, delta=1e-5, seed=seed,
        )  # fmt: skip
    lines = (json.dumps({"prompt": prompt}) + "\n" for prompt in requests(300)[180:])
    prompts.with_suffix(".jsonl").write_text("".join(lines), encoding="utf-8")
    if not (folder / "result.json").exists():
        murmuration.align(
            reward / "model", base="smollm2", base_privacy="public", truth="none", seed=seed,
            prompts=str(prompts.with_suffix(".jsonl")), prompts_public=True, out=folder,
            steps=Steps(steps=20), lora_layers="last:8", sampling=Sampling(max_new_tokens=64),
            evaluate_on=8, evaluate_every=1000, resume=(folder / "config.json").exists(),
        )  # fmt: skip
    answers = written(
        out / "answers" / str(seed), str(folder / "model"), requests(QUESTIONS), SAMPLES
    )
    flat = [one for row in answers for one in row]
    both = SavedLikelihood.load(folder / "model"), SavedLikelihood.load("smollm2")
    ratios = log_ratios(*both, [one.prompt for one in flat], [one.response for one in flat])
    assert ratios is not None
    return answers, float(np.nanmean(ratios))


def main(data: Path, out: Path) -> None:
    """Print wins, at equal length too, by each judge."""
    people = {
        group: read_judgements(str(data / f"{group}.jsonl"), "btl", "", {}) for group in GROUPS
    }
    base = written(out / "answers", "smollm2", requests(300), 21)[:QUESTIONS]
    policies = [made(data, out / "policies", seed) for seed in range(SEEDS)]
    print("nats", [nats for _, nats in policies])
    rows = [
        [*row[:MET], *(one for answers, _ in policies for one in answers[at])]
        for at, row in enumerate(base)
    ]
    pool, draws = Pool(rows, MET), CrossedDraws(QUESTIONS, SEEDS)
    chance_SPN = np.repeat(np.eye(SEEDS) / SAMPLES, SAMPLES, axis=1)[:, None]
    chance_SPN = np.broadcast_to(chance_SPN, (SEEDS, QUESTIONS, SEEDS * SAMPLES))
    names = ("minilm", "smollm2")
    gold = Plan(names, (), best_of=(1,))
    judges = {name: learned(people, name, pool, gold)[1] for name in names}
    for name, judge in {**judges, LONGER: length_alone(people, pool)}.items():
        controlled_B = draws.length_controlled(
            np.repeat(chance_SPN / MET, MET, axis=2),
            judge.wins_PNK.reshape(QUESTIONS, -1),
            pool.longer_PNK.reshape(QUESTIONS, -1),
        )
        wins_B = draws.means(chance_SPN, judge.wins_PNK.mean(2))
        print(name, interval("win", wins_B), interval("controlled", controlled_B))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
