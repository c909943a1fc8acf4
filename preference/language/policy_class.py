"""A finite class of policies that are there already, and what users' judgements lose under each.

A policy is a model of the next token, as any run with `--task policy` or `sft` saves it, or anybody
else's; all of a class began from one reference, and say the same tokens. Nothing is trained: θ has
a place for each policy, and is 1 at the one that is chosen.

Every text is measured by itself, under the reference and under one policy after the other, of which
one is in memory at a time. So what a judgement loses is a function of that judgement, of the
policies and of public constants, bit for bit on one machine, whoever else is there.

A policy under which a log-ratio is no number loses as much as any can on that judgement, so that it
takes nobody's part from others. (One with NaN in its weights is refused where it is loaded.)

Legend: P policies, J judgements, N of some users, K responses of each, T distinct texts, R texts in
a batch.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from murmuration.preference.data.judgements import Judgements, LeftOut
from murmuration.preference.data.rows import InputError, Kind
from murmuration.preference.data.sources import first_line
from murmuration.preference.language.base_model import NOTHING, BaseSettings, LanguageBase
from murmuration.preference.language.loading import contents_of
from murmuration.preference.language.policies import PolicyExamples, policy_examples, policy_loss

KIND, FORMAT = "policy-class", "murmuration-policy-class-1"
#: Between the name of a class's file and its digest, where both are said.
_AT = "#"


@dataclass(frozen=True)
class Policy:
    """One of a class.

    Attributes:
        name: by which it is told.
        path: its folder, or a hub name.
        digest: SHA-256 of what decides what it says (`checkpoint.digest_of`).
        lineage: heads of the ledgers of the runs that it came from, as its folder has them.
        public: whether it was declared that it, or what it came from, cost nobody anything.
    """

    name: str
    path: str
    digest: str
    lineage: tuple[str, ...] = ()
    public: bool = False


def class_digest(policies: Sequence[Policy]) -> str:
    """SHA-256 in hex of all that is said of policies but where they lie."""
    said = [[p.name, p.digest, [*p.lineage], p.public] for p in policies]
    return hashlib.sha256(json.dumps(said, separators=(",", ":")).encode()).hexdigest()


def check_class(policies: Sequence[Policy]) -> None:
    """InputError for a class of nothing, or with one policy twice (names both)."""
    if not policies:
        raise InputError("a class of policies holds at least one")
    names: set[str] = set()
    by_digest: dict[str, str] = {}
    for policy in policies:
        if policy.name in names:
            raise InputError(f"two policies of the class are called {policy.name!r}")
        if (other := by_digest.setdefault(policy.digest, policy.name)) != policy.name:
            raise InputError(f"the policies {other!r} and {policy.name!r} are the same model")
        names.add(policy.name)


def write_class(file: Path, policies: Sequence[Policy]) -> str:
    """Write a class's file; its digest.

    Raises:
        InputError: as `check_class`, or the file is there already: what was committed stays.
    """
    check_class(policies)
    digest = class_digest(policies)
    about = {"format": FORMAT, "digest": digest, "policies": [asdict(p) for p in policies]}
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(json.dumps(about, indent=2) + "\n")
    except FileExistsError:
        raise InputError(f"{file} is there already: a class that was committed stays") from None
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}") from None
    return digest


def read_class(named: str) -> tuple[Policy, ...]:
    """The policies of a class's file, in their order; ``named`` may say the class's digest, too.

    Raises:
        InputError: it cannot be read, is no class, was edited, or is not the class that was named.
    """
    file, _, stated = named.partition(_AT)
    try:
        about = json.loads(Path(file).expanduser().read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise ValueError(f"not a class of policies of format {FORMAT}")
        policies = tuple(_policy(entry) for entry in about["policies"])
        digest = str(about["digest"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"--policies {file}: cannot be used: {first_line(error)}") from None
    check_class(policies)
    if class_digest(policies) != digest:
        raise InputError(f"--policies {file}: was edited since it was committed")
    if stated and digest != stated:
        raise InputError(
            f"--policies {file}: another class than the one that was named: {digest[:16]}…, "
            f"not {stated[:16]}…"
        )
    return policies


def _policy(entry: Mapping[str, Any]) -> Policy:
    """From JSON; TypeError or ValueError for anything else."""
    kinds = {"name": str, "path": str, "digest": str, "lineage": list, "public": bool}
    if any(type(entry[name]) is not kind for name, kind in kinds.items()):
        raise ValueError("a policy that is none")
    return Policy(**{**entry, "lineage": tuple(map(str, entry["lineage"]))})


def with_digest(file: str) -> str:
    """A class's file with the digest of what it is now; InputError as `read_class`."""
    policies = read_class(file)
    path = Path(file.partition(_AT)[0]).expanduser().absolute()
    return f"{path}{_AT}{class_digest(policies)}"


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

    Raises:
        InputError: a policy is not there or is another than was committed, or says other tokens
            than the reference; names it.
    """

    def __init__(
        self, settings: BaseSettings, policies: Sequence[Policy], weights: bool = True
    ) -> None:
        check_class(policies)
        self.policies = tuple(policies)
        self.dimension = len(self.policies)
        self.reference = LanguageBase(replace(settings, train=NOTHING), weights)
        self._loaded: tuple[int, LanguageBase] | None = None
        for policy in self.policies:
            self._check(policy)

    @property
    def settings(self) -> BaseSettings:
        """Of the reference."""
        return self.reference.settings

    @cached_property
    def digest(self) -> str:
        """Of the class."""
        return class_digest(self.policies)

    def to_config(self) -> dict[str, Any]:
        """JSON-able description from which `policy_class` makes an equal one."""
        said = [asdict(policy) | {"lineage": [*policy.lineage]} for policy in self.policies]
        return {**self.reference.to_config(), "kind": KIND, "policies": said, "class": self.digest}

    def policy(self, place: int) -> LanguageBase:
        """One of them, loaded; the last one is kept, and no other."""
        if self._loaded is None or self._loaded[0] != place:
            self._loaded = None  # before another takes its memory
            policy = self.policies[place]
            with _naming(policy):
                self._loaded = place, LanguageBase(self._settings(policy))
        return self._loaded[1]

    def chosen(self, theta_P: np.ndarray) -> int:
        """The place of the policy that θ is 1 at; ValueError where it is none, or several."""
        (places,) = np.nonzero(np.asarray(theta_P))
        if len(places) != 1:
            raise ValueError("no one policy is chosen")
        return int(places[0])

    def unrounded(self, place: int) -> LanguageBase:
        """One of them in float32, to be saved."""
        whole = {"dtype": "float32", "quantise": "none"}
        return LanguageBase(replace(self._settings(self.policies[place]), **whole))

    def _settings(self, policy: Policy) -> BaseSettings:
        """Of a policy: those of the reference, but for where it lies and what it is."""
        return replace(
            self.settings, path=policy.path, digest=policy.digest, revision="", merged=""
        )

    def _check(self, policy: Policy) -> None:
        """That what is there is what was committed, and speaks as the reference does."""
        with _naming(policy):
            found = contents_of(policy.path).digest
            if found != policy.digest:
                raise InputError(
                    "another model is there than was committed: SHA-256 "
                    f"{found[:16]}…, committed {policy.digest[:16]}…"
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
        said = str(error).removeprefix(f"--base {policy.path}: ")
        raise InputError(f"policy {policy.name!r} ({policy.path}): {said}") from None


def _speech(base: LanguageBase) -> tuple[object, ...]:
    """What decides which tokens a text is."""
    words = base.tokenizer
    whole = {"slow": str(type(words))}
    if words.is_fast:
        whole = json.loads(words.backend_tokenizer.to_str())
        whole |= {"truncation": None, "padding": None}  # as whoever used it last had them
    special = sorted((name, str(token)) for name, token in words.special_tokens_map.items())
    return whole, words.get_vocab(), special, words.chat_template


def policy_class(config: Mapping[str, Any], weights: bool = True) -> PolicyClass:
    """The class that a config describes.

    Raises:
        InputError: as `PolicyClass`, or it is not the class that the config names.
    """
    known = {field.name for field in fields(BaseSettings)}
    settings = BaseSettings(**{name: config[name] for name in config.keys() & known})
    try:
        policies = tuple(_policy(entry) for entry in config["policies"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"no class of policies: {first_line(error)}") from None
    found = PolicyClass(settings, policies, weights)
    if config.get("class", found.digest) != found.digest:
        raise InputError("another class of policies than the one that is named by its digest")
    return found


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
        """Of the judgements."""
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
        """How many judgements each user has."""
        return self.judged.counts_U

    def select(self, users_S: np.ndarray) -> Self:
        """The judgements of some users, in the given order; what is known of texts is shared."""
        return replace(self, judged=self.judged.select(users_S))

    def in_public(self) -> Self:
        """The same, declared public: texts share batches."""
        return replace(self, judged=replace(self.judged, public=True))

    def measure(self, users_S: np.ndarray) -> None:
        """Have the likelihoods of some users' texts: one policy after the other is loaded, once."""
        asked = self.select(users_S)
        for place in range(self.dimension):
            asked.ratios(place)

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
        """What each judgement loses under each policy, (J, P) float64, of true labels."""
        loss = policy_loss(self.base.reference)
        y_JW = self.y_R.view(-1, self.width).double()
        worst = (1.0 + math.tanh(loss.r_max)) ** 2
        found = []
        for place in range(self.dimension):
            ratio_JK = self.ratios(place)
            loss_J = loss.loss(ratio_JK, y_JW)
            there_J = torch.isfinite(ratio_JK).all(dim=1) & torch.isfinite(loss_J)
            found.append(torch.where(there_J, loss_J, worst).numpy())
        return np.stack(found, axis=1)

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


def class_examples(
    judgements: Judgements, base: PolicyClass, left_out: LeftOut | None = None
) -> ClassExamples:
    """The tokens of judgements, for a class; ``left_out`` as of `token_examples`.

    Raises:
        InputError: as of `token_examples`.
    """
    judged = policy_examples(judgements, base.reference, left_out)
    log_PT = np.zeros((base.dimension, len(judged.reference_T)))
    known_PT = np.zeros(log_PT.shape, dtype=bool)
    known_PT[:, -1] = True
    return ClassExamples(base, judged, log_PT, known_PT)
