"""A private reward in TRL's own trainer: twenty steps of GRPO, and the reward before and after.

    pip install 'murmuration-rlhf[align]'
    murmuration run --epsilon 3 --delta 1e-5 --length none --out runs/first
    python examples/trl_policy.py runs/first/model

The policy is a tiny language model of the embedded population's public text, made here unless
`--policy` names one. Prompts are public. What is made with a released reward and public text costs
the reward's users nothing further.
"""

import argparse
import tempfile
from statistics import fmean

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from murmuration import reward_function
from murmuration.sims.population.population import Population
from murmuration.sims.population.tiny_language_model import TinyBase, build, public_texts


def main() -> None:
    """Train the policy; print the mean reward of what it writes before and after."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reward", help="folder of a saved reward model")
    parser.add_argument("--policy", default="", help="folder of a language model")
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()

    with tempfile.TemporaryDirectory() as scratch:
        path = given.policy or make_policy(f"{scratch}/policy")
        prompts = [prompt for prompt, *_ in public_texts(Population(seed=1), 64)]
        reward = reward_function(given.reward)
        tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
        policy = AutoModelForCausalLM.from_pretrained(path)
        before = mean_reward(policy, tokenizer, prompts, reward)
        GRPOTrainer(
            model=policy,
            processing_class=tokenizer,
            reward_funcs=reward,
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            args=GRPOConfig(
                output_dir=f"{scratch}/out",
                max_steps=given.steps,
                per_device_train_batch_size=32,
                num_generations=4,
                max_completion_length=40,
                learning_rate=1e-3,
                beta=0.05,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
                bf16=False,
                gradient_checkpointing=False,
            ),
        ).train()
        after = mean_reward(policy, tokenizer, prompts, reward)
    print(f"mean reward of {len(prompts)} answers: {before:+.3f} before, {after:+.3f} after")


def make_policy(path: str) -> str:
    """A language model that has read 600 public exchanges of the embedded population."""
    build(path, TinyBase(kind="llama", width=64, layers=2), public_texts(Population(), 600))
    return path


@torch.no_grad()
def mean_reward(policy, tokenizer, prompts, reward) -> float:
    """The mean reward of one sampled answer to each prompt."""
    torch.manual_seed(0)
    asked = tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
    said = policy.eval().generate(**asked, max_new_tokens=40, do_sample=True)
    answers = tokenizer.batch_decode(
        said[:, asked["input_ids"].shape[1] :], skip_special_tokens=True
    )
    return fmean(reward(prompts, answers))


if __name__ == "__main__":
    main()
