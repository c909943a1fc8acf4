"""Names of what can be learnt, and of what: light to import, for whoever only offers them."""

from typing import Literal

from murmuration.preference.data.errors import InputError

#: Kinds of judgements (``preference.data.rows``).
Kind = Literal["pairs", "top-1", "ranking", "thumbs"]
#: Every judgement of a node takes as much memory as one over the most responses.
MOST_RESPONSES = 64

#: Models of a preference (``preference.models``).
MODELS = ("btl", "thurstone", "plackett-luce", "thumbs")
#: What is learnt (``preference.data.loading``): a reward, the next token of texts or responses, or
#: a policy: which responses to say.
TASKS = ("reward", "text", "sft", "policy")
#: Of these, what is judged by judgements, and what by the next tokens of texts.
JUDGED, NEXT_TOKENS = ("reward", "policy"), ("text", "sft")
#: Losses of a policy (``preference.policy_losses``); those of pairs alone, those that clip.
POLICY_LOSSES = ("dpo", "ipo", "chipo", "square-chipo", "square-dpo", "robust-dpo")
PAIR_LOSSES = ("ipo", "square-chipo", "square-dpo")
CLIPPED_LOSSES = ("chipo", "square-chipo", "square-dpo")
#: Those that correct for randomized labels.
UNBIASED_LOSSES = ("robust-dpo", "square-chipo", "square-dpo")
#: What of a language model is trained (``preference.language.base_model``).
TRAINED = ("head", "lora", "full")
#: How a response's length counts among features (``preference.features.text_length``).
LENGTHS = ("bounded", "none", "log")
#: What a language model computes in; ``auto`` is one of the others.
DTYPES = ("auto", "float32", "bfloat16", "float16")
#: In how many bits a language model's frozen linear layers are kept: those of ``dtype``, or fewer.
QUANTISED = ("none", "8bit", "4bit")
#: The server's optimizers (``strategies.optimizers``).
OPTIMIZERS = ("sgd", "adam", "adafactor")


def check_model(name: str, width: int, kind: Kind = "pairs") -> None:
    """Whether a model of preferences is for judgements of a kind, over as many as ``width`` + 1
    responses.

    Raises:
        InputError: an unknown name, a model of pairs for judgements over more, or thumbs and
            another model or the other way round.
    """
    if name not in MODELS:
        raise InputError(f"--model must be one of {', '.join(MODELS)}; got {name!r}")
    if (name == "thumbs") != (kind == "thumbs"):
        raise InputError(
            "--model thumbs is for thumbs up and down, and these are declared with --kind thumbs: "
            f"use both or none; got --model {name} and --kind {kind}"
        )
    if width > 1 and name != "plackett-luce":
        raise InputError(
            f"--model {name} is a model of pairs, and judgements are declared to be over as many "
            f"as {width + 1} responses: use --model plackett-luce"
        )
