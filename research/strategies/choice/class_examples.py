"""A finite class of existing policies, and the losses of users' judgements under each.

A policy is a causal language model, saved by a run with `--task policy` or `sft`, or from
elsewhere; all of a class began from one reference, and have the same tokens. Nothing is trained: θ
has a place for each policy, and is 1 at the one that is chosen.

Every text is measured by itself, under the reference and under one policy after the other, of which
one is in memory at a time. So a judgement's losses are a function of that judgement, of the
policies and of public constants, bit for bit on one machine, whatever other users there are.

A policy under which a log-ratio is not a number has the largest possible loss on that judgement, so
that other judgements still count. (One with NaN in its weights is refused where it is loaded.)

Legend: P policies, J judgements, N of some users, K responses of each, T distinct texts, R texts in
a batch.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import torch

from murmuration.preference.accuracy import Accuracy, accuracy_by, float32_of
from murmuration.preference.base_names import last_name
from murmuration.preference.choices import Kind
from murmuration.preference.data.errors import InputError, first_line
from murmuration.preference.data.judgements import LeftOut
from murmuration.preference.data.loading import Data
from murmuration.preference.data.schema import Schema
from murmuration.preference.kinds.model import Examples
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import NOTHING, BaseSettings
from murmuration.preference.language.confined.tokenizer import (
    confined,
    is_confined,
    serialized,
)
from murmuration.preference.language.examples.policies import (
    PolicyExamples,
    policy_examples,
    policy_loss,
    policy_rewards,
)
from murmuration.preference.language.loading import contents_of
from murmuration.preference.language.reward import save_language_model
from murmuration.preference.model_folder import DEFAULT, SaveOptions
from murmuration.preference.models import PreferenceModel
from murmuration.research.strategies.choice.policy_class import (
    KIND,
    Policy,
    check_class,
    class_digest,
    policy_of,
)


class PolicyClass:
    """A loaded reference, and policies that are loaded one at a time.

    Args:
        settings: of the reference.
        policies: the class.
        weights: False for names and tokens alone, as of `LanguageBase`.

    Attributes:
        reference: where all policies began.
        policies: as given.
        dimension: P.
        start_D: zeros, of which no policy is made.
        computes: whether weights were loaded.

    Raises:
        InputError: a policy is not there or is another than was committed, or says other tokens
            than the reference; names it.
    """

    trains, holds_promise = False, True
    details: Mapping[str, object] = MappingProxyType({})

    def __init__(
        self, settings: BaseSettings, policies: Sequence[Policy], weights: bool = True
    ) -> None:
        check_class(policies)
        self.policies = tuple(policies)
        self.dimension, self.computes = len(self.policies), weights
        self.start_D = np.zeros(self.dimension, dtype=np.float32)
        self.reference = LanguageBase(replace(settings, train=NOTHING), weights)
        self._loaded: tuple[int, LanguageBase] | None = None
        self._confined = is_confined()
        for policy in self.policies:
            self._check(policy)

    @classmethod
    def load(cls, config: Mapping[str, Any], weights: bool = True) -> Self:
        """The class that a config describes.

        Raises:
            InputError: as `PolicyClass`, or it is not the class that the config names.
        """
        known = {field.name for field in fields(BaseSettings)}
        settings = BaseSettings(**{name: config[name] for name in config.keys() & known})
        try:
            policies = tuple(policy_of(entry) for entry in config["policies"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"no class of policies: {first_line(error)}") from None
        loaded = cls(settings, policies, weights)
        if config.get("models", loaded.digest) != loaded.digest:
            raise InputError("another class of policies than the one that is named by its digest")
        return loaded

    @property
    def settings(self) -> BaseSettings:
        """The settings of the reference."""
        return self.reference.settings

    @cached_property
    def digest(self) -> str:
        """The digest of the class."""
        return class_digest(self.policies)

    def to_config(self) -> dict[str, Any]:
        """JSON-able description from which `load` makes an equal one."""
        policies = [asdict(policy) | {"lineage": [*policy.lineage]} for policy in self.policies]
        return {
            **self.reference.to_config(),
            "kind": KIND,
            "policies": policies,
            "models": self.digest,
        }

    def policy(self, place: int) -> LanguageBase:
        """A policy of the class, loaded; only the last one stays in memory."""
        if self._loaded is None or self._loaded[0] != place:
            self._loaded = None  # before another takes its memory
            policy = self.policies[place]
            with _naming(policy), confined(self._confined):
                self._loaded = place, LanguageBase(self._settings(policy))
        return self._loaded[1]

    def chosen(self, theta_P: np.ndarray) -> int:
        """The place of the policy that θ is 1 at; ValueError where it is none, or several."""
        (places,) = np.nonzero(np.asarray(theta_P))
        if len(places) != 1:
            raise ValueError("no one policy is chosen")
        return int(places[0])

    def loaded(self) -> Self:
        """Itself: a policy is loaded where it is used."""
        return self

    def examples(self, data: Data, left_out: LeftOut | None = None) -> "ClassExamples":
        """The tokens of judgements; ``left_out`` as of `token_examples`.

        Raises:
            InputError: as of `token_examples`, or there are no judgements.
        """
        judgements = data.as_judgements("--task policy is not for users' texts")
        judged = policy_examples(judgements, self.reference, left_out)
        log_PT = np.zeros((self.dimension, len(judged.reference_T)))
        known_PT = np.zeros(log_PT.shape, dtype=bool)
        known_PT[:, -1] = True
        return ClassExamples(self, judged, log_PT, known_PT)

    def reuse(self, made: Examples) -> None:
        """None: likelihoods depend on this class."""
        del made

    def try_out(self, schema: Schema, model: PreferenceModel, group_size: int, users: int) -> None:
        """Nothing: the policies are too many to test."""
        del schema, model, group_size, users

    def scores(
        self, theta_ID: Sequence[np.ndarray], prompts: Sequence[str], responses: Sequence[str]
    ) -> np.ndarray:
        """The implicit rewards of the chosen policies, (I, R)."""
        none_D = np.zeros(0, dtype=np.float32)
        rewards = [
            policy_rewards(self.policy(self.chosen(theta_P)), none_D, prompts, responses)
            for theta_P in theta_ID
        ]
        return np.array(rewards, dtype=np.float64).reshape(len(theta_ID), len(responses))

    def fits(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """True for each text that fits into the reference's context, (R,) bool."""
        return self.reference.texts.fits(prompts, responses)

    def choice(self, theta_D: np.ndarray, test: "ClassExamples | None") -> dict[str, object]:
        """The chosen policy; on a public test, the mean loss of judgements under each policy."""
        policy = self.policies[self.chosen(theta_D)]
        about: dict[str, object] = {
            "name": policy.name,
            "path": policy.path,
            "digest": policy.digest,
            "says": self._says(policy),
        }
        if test is not None:
            mean_P = test.losses().mean(axis=0).tolist()
            names = [each.name for each in self.policies]
            about["test_losses"] = dict(zip(names, mean_P, strict=True))
        return about

    def _says(self, policy: Policy) -> str:
        """A description of the choice for reports and cards."""
        by, last = self.settings, last_name(self.settings.path).removeprefix("./")
        return (
            f"Nothing was trained: of {self.dimension:,} policies that were there already, and "
            f"began from the language model `{last}`, it is `{policy.name}`, whole (SHA-256 "
            f"{policy.digest}). A crowd's judgements chose it by chance, the likelier the less "
            f"they lose under it by the loss `{by.loss}` (beta {by.beta:g}, r_max {by.r_max:g}). "
            f"The class of policies was committed before: {self.digest}."
        )

    def save(
        self, folder: Path, theta_D: np.ndarray, model: str, options: SaveOptions = DEFAULT
    ) -> None:
        """Write the policy that θ chooses."""
        chosen = self.unrounded(self.chosen(theta_D))
        save_language_model(folder, chosen, np.zeros(0), model, options)

    def unrounded(self, place: int) -> LanguageBase:
        """A policy of the class in float32, for saving."""
        return LanguageBase(replace(self._settings(self.policies[place]), dtype="float32"))

    def _settings(self, policy: Policy) -> BaseSettings:
        """A policy's settings: those of the reference, with its own path and digest."""
        return replace(
            self.settings, path=policy.path, digest=policy.digest, revision="", merged=""
        )

    def _check(self, policy: Policy) -> None:
        """Check that a policy is the one committed, and has the reference's tokens."""
        with _naming(policy):
            result = contents_of(policy.path).digest
            if result != policy.digest:
                raise InputError(
                    "another model is there than was committed: SHA-256 "
                    f"{result[:16]}…, committed {policy.digest[:16]}…"
                )
            other = LanguageBase(self._settings(policy), weights=False)
        same = (
            _speech(other) == _speech(self.reference)
            and other.words == self.reference.words
            and other.texts.limit == self.reference.texts.limit
        )
        if not same:
            raise InputError(
                f"policy {policy.name!r} ({policy.path}): another tokenizer, vocabulary or context "
                f"than those of the reference {self.settings.path}: the likelihoods of its tokens "
                "are no ratio to that one's"
            )


@contextmanager
def _naming(policy: Policy) -> Iterator[None]:
    """InputError within names the policy."""
    try:
        yield
    except InputError as error:
        why = str(error).removeprefix(f"--base {policy.path}: ")
        raise InputError(f"policy {policy.name!r} ({policy.path}): {why}") from None


def _speech(base: LanguageBase) -> tuple[object, ...]:
    """Everything that decides the tokens of a text."""
    words = base.tokenizer
    whole = {"slow": str(type(words))}
    if words.is_fast:
        whole = json.loads(serialized(words))
        whole |= {"truncation": None, "padding": None}  # as whoever used it last had them
    special = sorted((name, str(token)) for name, token in words.special_tokens_map.items())
    return whole, words.get_vocab(), special, words.chat_template


@dataclass(frozen=True, eq=False)
class ClassExamples:
    """Judgements, and what they lose under each policy of a class.

    Attributes:
        base: the class.
        judged: the judgements, under the reference.
        log_PT: float64, log-likelihood of each text under each policy; the last, of no text, is 0.
        known_PT: which of these are known by now.
    """

    base: PolicyClass
    judged: PolicyExamples
    log_PT: np.ndarray
    known_PT: np.ndarray

    network = None  # likelihoods are of one class
    measures_loss = False  # it is a reward that a policy stands for

    @property
    def dimension(self) -> int:
        """P."""
        return self.base.dimension

    @property
    def width(self) -> int:
        """Responses beside the first, of a judgement."""
        return self.judged.width

    @property
    def kind(self) -> Kind:
        """The kind of the judgements."""
        return self.judged.kind

    @property
    def y_R(self) -> torch.Tensor:
        """As of `PairExamples`."""
        return self.judged.y_R

    @property
    def flip_J(self) -> torch.Tensor | None:
        """As of `PairExamples`."""
        return self.judged.flip_J

    @property
    def start_U(self) -> torch.Tensor:
        """U + 1 offsets of judgements."""
        return self.judged.start_U

    @property
    def counts_U(self) -> torch.Tensor:
        """The number of judgements of each user."""
        return self.judged.counts_U

    def accuracy(self, theta_D: np.ndarray | torch.Tensor) -> Accuracy:
        """The accuracy of the chosen policy."""
        logits_R = self.logits_R(torch.from_numpy(float32_of(theta_D)))
        return accuracy_by(logits_R, self.y_R, self.start_U, self.kind, self.width)

    def figures(self, theta_D: np.ndarray) -> tuple[Accuracy, dict[str, float]]:
        """The accuracy; there are no other metrics."""
        return self.accuracy(theta_D), {}

    def in_batches(self, tokens: int) -> Self:
        """Itself: every text is measured by itself."""
        del tokens
        return self

    def select(self, users_S: np.ndarray) -> Self:
        """The judgements of some users, in the given order; what is known of texts is shared."""
        return replace(self, judged=self.judged.select(users_S))

    def in_public(self) -> Self:
        """The same examples, declared public: texts share batches."""
        return replace(self, judged=replace(self.judged, public=True))

    def measure(self, users_S: np.ndarray) -> None:
        """Have the likelihoods of some users' texts: one policy after the other is loaded, once."""
        examples = self.select(users_S)
        for place in range(self.dimension):
            examples.ratios(place)

    def ratios(self, place: int) -> torch.Tensor:
        """Log-ratios of all judgements' responses under a policy, (J, K) float64; 0 where there is
        none."""
        texts_JK = self.judged.text_JK
        present = np.unique(texts_JK[texts_JK >= 0])
        self.judged.refer(present)
        self._measure(place, present)
        with np.errstate(invalid="ignore"):  # what is no number says so
            ratio_JK = self.log_PT[place, texts_JK] - self.judged.reference_T[texts_JK]
        return torch.from_numpy(np.where(texts_JK >= 0, ratio_JK, 0.0))

    def losses(self) -> np.ndarray:
        """The loss of each judgement under each policy, (J, P) float64, for true labels."""
        loss = policy_loss(self.base.reference)
        y_JW = self.y_R.view(-1, self.width).double()
        worst = (1.0 + math.tanh(loss.r_max)) ** 2
        result = []
        for place in range(self.dimension):
            ratio_JK = self.ratios(place)
            loss_J = loss.loss(ratio_JK, y_JW)
            there_J = torch.isfinite(ratio_JK).all(dim=1) & torch.isfinite(loss_J)
            result.append(torch.where(there_J, loss_J, worst).numpy())
        return np.stack(result, axis=1)

    def logits_R(self, theta_P: torch.Tensor) -> torch.Tensor:
        """The reward that the chosen policy stands for, of the first response less that of the
        other, for each row, (R,) float32."""
        logits_JW = policy_loss(self.base.reference).logits(
            self.ratios(self.base.chosen(theta_P.numpy()))
        )
        return logits_JW.nan_to_num(0.0).float().reshape(-1)

    def _measure(self, place: int, texts_R: np.ndarray) -> None:
        """Compute what is not known yet of texts under a policy."""
        new_R = texts_R[~self.known_PT[place, texts_R]]
        if not len(new_R):
            return
        under = replace(self.judged, base=self.base.policy(place))
        for some_R in under.measured(new_R):
            self.log_PT[place, some_R] = under.log_likelihoods(some_R)
        self.known_PT[place, new_R] = True
