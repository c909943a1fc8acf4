"""Settings of the model, and of its base or features."""

from dataclasses import dataclass

from murmuration.preference.choices import (
    DTYPES,
    LENGTHS,
    LORA_LAYERS,
    TASKS,
    TRAINED,
    USER_PASSES,
)
from murmuration.preference.data.public_names import whole_start
from murmuration.preference.models import LOSSES, MODELS, in_words
from murmuration.preference.policy_losses import (
    CLIPPED_LOSSES,
    DEFAULT,
    OBJECTIVES,
    POLICY_LOSSES,
    UNBIASED_LOSSES,
)
from murmuration.strategies.settings.declaration import (
    AT_LEAST_ONE,
    MODEL,
    POSITIVE,
    settings_in,
)

_setting, _of_base = settings_in(MODEL), settings_in(MODEL, base=True)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Settings of what is trained, and on which base or features."""

    model: str = _setting(
        "btl",
        f"Preference model: {in_words()}. [default: by --kind]",
        common=True,
        choices=MODELS,
        others=LOSSES,
    )
    features: str = _setting(
        "hashing",
        "hashing, minilm (a small encoder), auto (minilm where installed), an encoder's path or "
        "hub name, or smollm2 or a GGUF file (a frozen language model's states). strengths: a "
        "number for each response on --items; strengths+minilm: beside those.",
        common=True,
    )
    length: str = _setting(
        "bounded",
        "How a response's length counts among these features: bounded, so that padding soon pays "
        "nothing; none; or log, which pays for it without end. "
        "[default: bounded]",
        choices=LENGTHS,
    )
    start: str = _setting(
        "",
        "Where a linear reward begins, public or with its own ledger: length (the longer response "
        "is better), the folder of a saved reward, or of a sequence classifier with one score. "
        "[default: at zero]",
        common=True,
        pinned=whole_start,
    )
    base: str = _setting(
        "", "The base: a folder, or a hub name. A language model to train: see --task.", common=True
    )
    system: str = _of_base(
        "",
        "System prompt, before prompts that have none of their own, as the base's chat template "
        "writes it. [default: that which --base was trained with, else as its template does by "
        "itself]",
    )
    task: str = _setting(
        "reward",
        "What is trained. reward: from judgements. text: the next token of users' own texts "
        "(user_id, text). sft: that of the responses in judgements. policy: a model that answers "
        "as people prefer. [default: reward]",
        common=True,
        choices=TASKS,
    )
    loss: str = _of_base(
        "",
        f"policy: {', '.join(name for name in POLICY_LOSSES if name not in UNBIASED_LOSSES)}; or "
        f"{', '.join(UNBIASED_LOSSES)}, which correct for randomized labels. "
        f"[default: {DEFAULT}]",
        choices=POLICY_LOSSES,
        others=OBJECTIVES,
    )
    beta: float = _of_base(
        0.0, "policy: the reward that a log-ratio of one stands for. [default: 1]", **POSITIVE
    )
    r_max: float = _of_base(
        0.0,
        f"policy: rewards' differences are clipped at twice this, by {', '.join(CLIPPED_LOSSES)}. "
        "[default: 2]",
        **POSITIVE,
    )
    train: str = _of_base(
        "", "Which weights of --base are trained. [default: lora]", choices=TRAINED
    )
    lora_rank: int = _of_base(0, "Rank of LoRA. [default: 16]", **AT_LEAST_ONE)
    lora_targets: str = _of_base(
        "", "Layers that LoRA changes, comma-separated, or all-linear. [default: by architecture]"
    )
    lora_layers: str = _of_base(
        "",
        "Which layers of --base LoRA changes: all, last:4, or 9-12. auto: the last 2 (align: 8), "
        "or all where there are no more. What a text gives below the first is computed once and "
        "kept. [default: auto]",
        good=lambda value: not value or bool(LORA_LAYERS.fullmatch(value)),
        expected="auto, all, last:COUNT or FIRST-LAST",
    )
    max_tokens: int = _of_base(
        0,
        "Most tokens of prompt and response (longer prompts lose their beginning), or of a "
        "window of a text. [default: 256]",
        **AT_LEAST_ONE,
    )
    batch_tokens: int = _of_base(
        0,
        "Tokens of a user that are computed at a time. [default: as suits the device]",
        **AT_LEAST_ONE,
    )
    dtype: str = _of_base(
        "",
        "What --base computes in: float32, bfloat16, float16, or auto: bfloat16 where the machine "
        "on which the run begins is fast in it. What is trained, and users' gradients, stay "
        "float32. [default: bfloat16 on a GPU that has it, else float32]",
        good=lambda value: value in ("", *DTYPES),
        expected=f"one of {', '.join(DTYPES)}",
    )
    checkpointing: bool = _of_base(
        False,
        "Compute activations of --base once more instead of keeping them: less memory, a third "
        "more computing.",
    )
    once_per_text: bool = _of_base(
        False,
        "Compute the gradient of each distinct text once in a round, for all of a node's users who "
        "judged it. Pays where texts were judged by several users, or often.",
    )
    user_passes: str = _setting(
        "",
        "Backward passes of a language model. isolated: each holds one user's rows, so that no "
        "user moves another's vector. shared: rows of several users, faster on short texts; that "
        "no user moves another's vector is then only measured, not proven. [default: isolated]",
        choices=USER_PASSES,
        steps=True,
    )

    @property
    def shared_passes(self) -> bool:
        """True if a backward pass may hold rows of several users."""
        return self.user_passes == "shared"


def user_isolation(shared_passes: bool) -> str:
    """The reason why no user changes another's vector: by construction, or only as measured."""
    return "empirical" if shared_passes else "by construction"
