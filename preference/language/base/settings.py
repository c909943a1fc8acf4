"""The choice of a transformer and of its trained part: settings that describe a `LanguageBase`.

A description holds no weights. It travels to nodes, and is checked where it is made; ``resolved``
looks at what is at its path. What computes with it is in `preference.language.base.network`.
"""

from dataclasses import KW_ONLY, asdict, dataclass, replace
from typing import Any

from murmuration.preference.base_names import resolve_base
from murmuration.preference.choices import (
    DTYPES,
    LORA_LAYERS,
    MOST_SYSTEM,
    TASKS,
    TRAINED,
)
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.checkpoint import check_same
from murmuration.preference.language.loading import contents_of, last_or_all
from murmuration.preference.language.machine import fastest_dtype, usual_dtype
from murmuration.preference.policy_losses import PolicyLoss

KIND = "language-model"
#: Layers that LoRA changes where nobody says which, measured where it learns by noisy gradients
#: (`docs/research/real-people.md`).
USUALLY = 2
#: What is trained of a policy that is there already, or of its reference.
NOTHING = "nothing"
#: Tasks whose examples are made of texts that others may have judged, too.
BY_TEXT = ("reward", "policy")
#: Settings that say nothing of the network at θ = 0; where it lies is not which one it is.
_NOT_OF_REFERENCE = (
    *("path", "max_tokens", "batch_tokens", "loss", "beta", "r_max", "once_per_text"),
)


@dataclass(frozen=True)
class BaseSettings:
    """The choice of a model, and of its trained part.

    Attributes:
        path: a local folder, or a name on a hub.
        train: one of `TRAINED`, or `NOTHING`.
        rank: of LoRA's factors.
        alpha: their product is multiplied by alpha / rank; 0: as the rank.
        targets: names of the layers that LoRA changes, comma-separated, or `all-linear`; empty:
            queries and values, as peft or the layers' names have it for the architecture.
        max_tokens: the most tokens of prompt and response together.
        batch_tokens: tokens that are computed at a time, padding included; 0: as suits the device.
        task: one of `preference.choices.TASKS`.
        dtype: one of `DTYPES`, which the network computes in; empty: as `usual_dtype` has it;
            ``auto``: as `fastest_dtype` does.
        checkpointing: whether blocks' activations are computed once more instead of kept.
        loss: of `policy`: its loss, with ``beta`` and ``r_max`` as of `policy_losses.PolicyLoss`.
        layers: which of the network's layers LoRA changes, as `LORA_LAYERS` has it; `resolved`
            says which ``auto`` are. What is below them is computed once for each text
            (`preference.language.base.lower_layers`).
        once_per_text: of judgements: whether the gradient of each distinct text is computed once in
            a round, for all users who judged it (`preference.language.examples.language_examples`).
        system: the system prompt, before prompts that have none of their own; empty: as the chat
            template does by itself.
        digest: SHA-256 of the model at ``path``; empty: any.
        revision: its commit, where it comes from a hub.
        merged: the base that ``path`` was merged into, if it is an adapter.

    Raises:
        InputError: a value out of range.
    """

    path: str
    train: str = "lora"
    rank: int = 16
    _: KW_ONLY
    alpha: int = 0
    targets: str = ""
    max_tokens: int = 256
    batch_tokens: int = 0
    task: str = "reward"
    dtype: str = ""
    checkpointing: bool = False
    loss: str = PolicyLoss.name
    beta: float = PolicyLoss.beta
    r_max: float = PolicyLoss.r_max
    layers: str = "all"
    once_per_text: bool = False
    system: str = ""
    digest: str = ""
    revision: str = ""
    merged: str = ""

    def __post_init__(self) -> None:
        for name, choices, unnamed in (
            ("train", TRAINED, NOTHING),
            ("task", TASKS, None),
            ("dtype", DTYPES, ""),
        ):
            if (value := getattr(self, name)) not in (*choices, unnamed):
                option = "--" + name.replace("_", "-")
                raise InputError(f"{option} must be one of {', '.join(choices)}; got {value!r}")
        check_system(self.system)
        if self.system and self.task == "text":
            raise InputError("--system is for prompts, which the texts of --task text have not")
        if not LORA_LAYERS.fullmatch(self.layers):
            raise InputError(
                f"--lora-layers must be auto, all, last:COUNT or FIRST-LAST; got {self.layers!r}"
            )
        if self.train != "lora" and self.layers != "all":
            raise InputError("--lora-layers is for --train lora")
        if self.once_per_text and (self.task not in BY_TEXT or self.train == "head"):
            raise InputError(
                f"--once-per-text is for --task {' or '.join(BY_TEXT)}, and --train lora or full"
            )
        PolicyLoss(self.loss, self.beta, self.r_max)  # or says what is wrong with them
        if self.task != "reward" and self.train == "head":
            raise InputError(
                f"--task {self.task} has no head of its own to train: use --train lora or full"
            )
        for name, option, least in (
            ("rank", "--lora-rank", 1),
            ("max_tokens", "--max-tokens", 1),
            ("batch_tokens", "--batch-tokens", 0),
            ("alpha", "alpha of LoRA", 0),
        ):
            if (value := getattr(self, name)) < least:  # 0 stands for the default
                raise InputError(f"{option} must be at least 1; got {value}")

    def to_config(self) -> dict[str, Any]:
        """JSON-able description from which `language_base` makes an equal one."""
        return {"kind": KIND, **self.described}

    @property
    def described(self) -> dict[str, Any]:
        """All settings; without `system` if there is no system prompt."""
        result = asdict(self)
        if not self.system:
            del result["system"]
        return result

    @property
    def of_reference(self) -> dict[str, Any]:
        """The settings that a likelihood at θ = 0 depends on: not the loss, nor the model's
        place.
        """
        return {k: v for k, v in self.described.items() if k not in _NOT_OF_REFERENCE}


def check_system(system: str) -> None:
    """InputError for a system prompt that is no Unicode text, or too long."""
    is_text = isinstance(system, str) and not any("\ud800" <= one <= "\udfff" for one in system)
    if not is_text or len(system) > MOST_SYSTEM:
        raise InputError(f"--system must be Unicode text of at most {MOST_SYSTEM:,} characters")


def resolved(settings: BaseSettings, usually: int = USUALLY) -> BaseSettings:
    """Complete the settings with the digest and revision at their path, the number type, and the
    layers: ``auto`` means the last ``usually``, or all if there are no more.

    Raises:
        InputError: nothing is there, or its digest or revision is another.
    """
    path = resolve_base(settings.path)
    result = contents_of(path)
    check_same(path, result.digest, settings.digest, settings.revision)
    chosen = {"": usual_dtype, "auto": fastest_dtype}.get(settings.dtype)
    dtype = chosen() if chosen else settings.dtype
    layers = settings.layers
    if layers == "auto":
        layers = last_or_all(path, settings.task != "reward", result.digest, usually)
    return replace(settings, path=path, dtype=dtype, layers=layers, **vars(result))
