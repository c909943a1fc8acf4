"""Names of what can be learnt, and of what: light to import, for whoever only offers them."""

from murmuration.preference.data.rows import InputError

#: Models of a preference (``preference.models``).
MODELS = ("btl", "thurstone", "plackett-luce")
#: What is learnt (``preference.data.loading``): a reward, or the next token of texts or responses.
TASKS = ("reward", "text", "sft")
#: What of a language model is trained (``preference.language.base_model``).
TRAINED = ("head", "lora", "full")
#: What a language model computes in; ``auto`` is one of the others.
DTYPES = ("auto", "float32", "bfloat16", "float16")
#: In how many bits a language model's frozen linear layers are kept: those of ``dtype``, or fewer.
QUANTISED = ("none", "8bit", "4bit")
#: The server's optimizers (``strategies.optimizers``).
OPTIMIZERS = ("sgd", "adam", "adafactor")


def check_model(name: str, width: int) -> None:
    """Whether a model of preferences is for judgements over as many as ``width`` + 1 responses.

    Raises:
        InputError: an unknown name, or a model of pairs for judgements over more.
    """
    if name not in MODELS:
        raise InputError(f"--model must be one of {', '.join(MODELS)}; got {name!r}")
    if width > 1 and name != "plackett-luce":
        raise InputError(
            f"--model {name} is a model of pairs, and judgements are declared to be over as many "
            f"as {width + 1} responses: use --model plackett-luce"
        )
