"""Audits of whole runs that learn a policy: canary users of a tiny language model.

The runs, the attackers and the bound are those of `audits.pipeline`; what learns is a network
of GPT-2's kind with random layers, all of it trained, on judgements of two words each, by their
likelihoods under a policy and its reference.

Directions of users are not orthogonal in a language model: they share its layers, and a model moves
with all users in it. What is a canary's own are the two rows of the head for the next token that
belong to their words. With answers of one word no other user's gradient has a component there: what
all words share of a log-likelihood, the sum over the vocabulary, is the same of both answers and
cancels in their difference. The head begins at zero, as a new one does, so that a first gradient
lies in these rows alone; with the noise in the head more and more of it lies in the layers below.
The white-box attacker looks at the rows only, and knows how long a canary's clipped gradient is
there: he computes it at the model that was sent.

How long that is depends on all canaries, through the model. So outcomes are not independent, and
the bound is that of one run, which does not need them to be (Steinke, Nasr and Jagielski 2023). The
black-box attacker queries the released policy for the log-ratio of the two words.

With an existing base, canaries cannot have words of their own. There the base writes their answers
itself, drawn at a high temperature: text that no user wrote, that involves no user's data, and that
is unlikely enough for a model to show that it has learnt it (Mitchell et al. 2026). The attacker is
black-box, and uses the change of the log-ratio of the two answers.

Legend: M canaries, D trained parameters, V words, H width.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from murmuration.audits.auditing import Measured, Target, Task
from murmuration.audits.pipeline import (
    CLIP,
    ONE_RUN_EPSILON,
    PROMPT,
    SHARE,
    Outcome,
    Watching,
    one_run,
    row_of,
    run_canaries,
)
from murmuration.preference.data.errors import with_extra
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.language.base.network import LanguageBase, language_base
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.examples.policies import policy_examples
from murmuration.preference.language.generation import Sampling, Writer
from murmuration.preference.language.likelihood import SavedLikelihood
from murmuration.preference.models import preference_model

_WIDTH, _LAYERS, _HEADS = 8, 1, 2
#: A reward of one for a log-ratio of one, so that gradients are far longer than the clip norm.
_BETA = 1.0
#: How far a noise of one clip norm moves θ, over epsilon, to which noise is about inversely
#: proportional: by enough for the layers below the head to learn from the second round on, and not
#: so much that most of a gradient lies there.
_STEP = 0.0125
#: How far one clip norm moves LoRA layers: so little that likelihoods change in proportion, by each
#: canary's part as it is in the sum.
_SHORT_STEP = 1e-4
#: How canaries' answers are drawn: little is left of what the base would say; a sentence long.
SAMPLING = Sampling(temperature=8.0, max_new_tokens=16)
#: The words of a base to write them with, where none is named; its width, and its layers.
_DRAWS = 8
_WORDS, _WRITER_WIDTH, _WRITER_LAYERS = 200, 32, 2


@dataclass(frozen=True)
class Policy:
    """A policy of canaries' words from a base in ``folder``; see `tiny_policy`."""

    folder: Path
    canaries: int
    epsilon: float
    base: None = None

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Two words of each."""
        return [(f"yes{number}", f"no{number}") for number in range(self.canaries)]

    @property
    def settings(self) -> dict[str, Any]:
        """A policy, all of it trained."""
        return {
            "task": "policy",
            "base": str(self.folder),
            "train": "full",
            "beta": _BETA,
            "learning_rate": _STEP * self.epsilon * round(SHARE * self.canaries) / CLIP,
        }

    @cached_property
    def network(self) -> LanguageBase:
        """The base, loaded."""
        path, train = str(self.folder), str(self.settings["train"])
        return language_base(vars(BaseSettings(path, train, task="policy", beta=_BETA)))

    def gradients(self, theta_D: np.ndarray) -> Iterator[torch.Tensor]:
        """Canaries' gradients at θ, in their order, some at a time, (B, D)."""
        rows = [row_of(str(number), *pair) for number, pair in enumerate(self.pairs)]
        examples = policy_examples(Judgements.from_rows(rows), self.network)
        every_M = torch.arange(self.canaries)
        return examples.user_gradients(
            torch.from_numpy(theta_D),
            every_M,
            torch.ones_like(every_M),
            preference_model("btl"),
            shared_passes=True,
        )

    def own(self, vectors_BD: torch.Tensor, canaries_B: np.ndarray) -> torch.Tensor:
        """The part of vectors that is some canaries' own, (B, 2·H)."""
        network: Any = self.network.model
        head_VH, start = network.get_output_embeddings().weight, 0
        for parameter in self.network.trained:
            if parameter is head_VH:
                break
            start += parameter.numel()
        table_BVH = vectors_BD[:, start : start + head_VH.numel()].view(-1, *head_VH.shape)
        words = [self.pairs[canary] for canary in canaries_B]
        ids_B2 = torch.tensor([self.network.tokenizer.convert_tokens_to_ids([*w]) for w in words])
        every_B1 = torch.arange(len(table_BVH))[:, None] if len(table_BVH) > 1 else 0
        return table_BVH[every_B1, ids_B2].flatten(1).double()

    def seen(self, before_D: np.ndarray, noisy_D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Along what is their own of their gradient, of which clipping leaves as much."""
        x_M, length_M, at = [], [], 0
        for grads_BD in self.gradients(before_D):
            canaries_B = np.arange(at, at + len(grads_BD))
            own_BK = self.own(grads_BD, canaries_B)
            own_B = own_BK.norm(dim=1)
            noisy_BK = self.own(torch.from_numpy(noisy_D)[None], canaries_B)
            x_M.append((own_BK * noisy_BK).sum(dim=1) / own_B)
            length_M.append(own_B / grads_BD.double().norm(dim=1).clamp(min=CLIP))
            at += len(grads_BD)
        return torch.cat(x_M).numpy(), torch.cat(length_M).numpy()

    def released(self, folder: Path) -> tuple[np.ndarray | None, np.ndarray]:
        """θ, and differences of log-likelihoods: under the reference, whose head is zero, all words
        are as likely."""
        saved = LanguageBase(BaseSettings(str(folder), self.network.settings.train, task="policy"))
        self.network.put(torch.zeros(self.network.dimension))
        moved_D = _flat(saved) - _flat(self.network)
        unit_D = self.network.to_theta(torch.ones(1, self.network.dimension))[0]
        return (moved_D / unit_D.double()).numpy(), self.preferred(folder)

    def preferred(self, folder: Path) -> np.ndarray:
        """The log-likelihood of the first of each canary's answers less that of the other, in nats,
        (M,).
        """
        likelihood = SavedLikelihood.load(folder)
        first_M, other_M = (
            likelihood.score([PROMPT] * self.canaries, [pair[side] for pair in self.pairs])
            for side in (0, 1)
        )
        return first_M - other_M


@dataclass(frozen=True)
class WrittenPolicy(Policy):
    """A policy of canaries whose answers the base in ``folder`` wrote, all of them different.

    Raises:
        InputError: it does not write as many.
    """

    seed: int = 0

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Two answers of each."""
        return self._written

    @cached_property
    def _written(self) -> list[tuple[str, str]]:
        writer, answers = Writer.load(self.folder), dict[str, None]()
        for draw in range(_DRAWS):
            missing = 2 * self.canaries - len(answers)
            written = writer.write([PROMPT] * missing, SAMPLING, [self.seed, draw])
            answers |= dict.fromkeys(filter(None, map(str.strip, written)))
            if len(answers) == 2 * self.canaries:
                listed = list(answers)
                return list(zip(listed[::2], listed[1::2], strict=True))
        raise InputError(
            f"{self.folder} wrote {len(answers)} different answers, and {self.canaries} canaries "
            "need two each: lower --trials"
        )

    @property
    def settings(self) -> dict[str, Any]:
        """LoRA layers of a policy, in short steps."""
        return {
            "task": "policy",
            "base": str(self.folder),
            "train": "lora",
            "learning_rate": _SHORT_STEP * round(SHARE * self.canaries) / CLIP,
        }

    def released(self, folder: Path) -> tuple[None, np.ndarray]:
        """The increase of the first answers' log-likelihood ratio by training."""
        return None, self.preferred(folder) - self.preferred(self.folder)


def _flat(base: LanguageBase) -> torch.Tensor:
    return torch.cat([parameter.detach().double().flatten() for parameter in base.trained])


@contextmanager
def tiny_policy(canaries: int, epsilon: float) -> Iterator[Policy]:
    """A policy of ``canaries`` canaries for a run at ``epsilon``, whose base exists inside.

    Raises:
        InputError: transformers is not installed.
    """
    with tempfile.TemporaryDirectory() as name:
        policy = Policy(Path(name), canaries, epsilon)
        words = [word for pair in policy.pairs for word in pair]
        model = _write_base(policy.folder, words, n_embd=_WIDTH, n_layer=_LAYERS, n_positions=8)
        with torch.no_grad():
            torch.nn.init.zeros_(model.lm_head.weight)
        model.save_pretrained(policy.folder)
        yield policy


def _write_base(folder: Path, words: list[str], **sizes: Any) -> Any:
    """Write a base of these words, with random layers; its network."""
    with with_extra("lm", "this audit needs transformers"):
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, logging
    logging.disable_progress_bar()
    # No end of text: it would follow on all answers, and be learnt from each.
    plain = ["[PAD]", "[UNK]", "Which", "?", "yes", "no"]
    listed = [*plain, *words]
    split = Tokenizer(models.WordLevel({word: i for i, word in enumerate(listed)}, "[UNK]"))
    split.pre_tokenizer = pre_tokenizers.Whitespace()
    config = GPT2Config(
        vocab_size=len(listed),
        n_head=_HEADS,
        **sizes,
        initializer_range=0.5,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = GPT2LMHeadModel(config)
    model.save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=split, pad_token="[PAD]", unk_token="[UNK]"
    )
    tokenizer.save_pretrained(folder)
    return model


@lru_cache(maxsize=2)
def _run(task: Task, grid: Callable[..., Watching]) -> Outcome:
    with tiny_policy(2 * task.trials, task.epsilon) as policy:
        return run_canaries(task, 0, grid, learner=policy)


def audit_policy(
    task: Task, *, white: bool = True, grid: Callable[..., Watching] = Watching
) -> Measured:
    """Audit one run of a policy, with a canary for each trial; ``grid`` as of `run_canaries`."""
    return one_run(task, _run(task, grid), white=white)


@contextmanager
def written_policy(task: Task) -> Iterator[WrittenPolicy]:
    """A policy with a canary for each trial, of the task's base, or of a tiny one that is there
    within.

    Raises:
        InputError: there is no transformers.
    """
    seed = int(task.source.stream("canary texts").integers(2**31))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(task.base or name)
        if not task.base:
            words = [f"word{number}" for number in range(_WORDS)]
            sizes = {"n_embd": _WRITER_WIDTH, "n_layer": _WRITER_LAYERS, "n_positions": 32}
            _write_base(folder, words, **sizes)
        yield WrittenPolicy(folder, 2 * task.trials, task.epsilon, seed=seed)


def audit_texts(task: Task) -> Measured:
    """Audit one run of a policy whose canaries' answers its base wrote."""
    with written_policy(task) as policy:
        return one_run(task, run_canaries(task, 0, learner=policy), white=False)


TARGETS = {
    "pipeline:policy": Target(
        "one whole run of --task policy with 1,000 canary users, all models seen",
        audit_policy,
        trials=500,
        epsilon=ONE_RUN_EPSILON,
        needs="transformers",
    ),
    "pipeline:policy:black-box": Target(
        "the same, the released policy asked how likely each answer is",
        partial(audit_policy, white=False),
        trials=500,
        epsilon=ONE_RUN_EPSILON,
        needs="transformers",
    ),
    "pipeline:texts": Target(
        "the same of a base of yours (`--base`), which writes the canaries' answers itself",
        audit_texts,
        trials=500,
        epsilon=ONE_RUN_EPSILON,
        based=True,
        needs="peft",
    ),
}
