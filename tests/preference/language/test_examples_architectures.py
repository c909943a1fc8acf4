"""Users' gradients and losses, architecture by architecture, against transformers by itself.

What is trained is saved, loaded by transformers (and peft) alone, and differentiated there, one
user after the other and one text at a time: nothing of this package computes what is expected.
"""

from itertools import pairwise, product

import numpy as np
import pytest
import torch
from learnt import model_on
from torch.nn.functional import logsigmoid

from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.schema import PAIRS
from murmuration.preference.data.texts import UserTexts
from murmuration.preference.language.base_model import BaseSettings, LanguageBase
from murmuration.preference.models import preference_model
from murmuration.privacy.mechanisms.clipping import ROUNDING, UserClip

BTL = preference_model("btl")
COUNTS = (3, 1, 2)
CLIP = 0.05
#: Of the length of a sum of clipped vectors in float32, whose unit roundoff is 6e-8. Most are below
#: 1e-6; where the rewards of two texts nearly cancel, both sides have lost as many digits: plain
#: transformers is then itself up to 4e-6 from what it computes in float64.
_ENCODERS = ("albert", "bert", "deberta-v2", "electra", "mpnet", "xlm-roberta")
SAME = dict.fromkeys(_ENCODERS, 3e-6)
USUAL = 2e-6
#: So many times as far from float64 as plain transformers in float32, at most.
AS_PLAIN = 2.5
CAUSAL = (
    "gpt2", "gptj", "gpt_neox", "gpt_bigcode", "opt", "bloom", "mpt", "falcon", "llama", "mistral",
    "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "phi", "phi3",
    "olmo", "olmo2", "smollm3", "stablelm", "starcoder2", "cohere", "granite", "glm4",
)  # fmt: skip
ENCODERS = (
    "bert", "roberta", "xlm-roberta", "distilbert", "deberta-v2", "electra", "albert", "mpnet",
    "modernbert",
)  # fmt: skip
TRAINED = ("lora", "full")
DAILY = (
    ("gpt_neox", "reward", "lora"),
    ("roberta", "reward", "full"),
    ("deberta-v2", "reward", "lora"),
)
CASES = [
    pytest.param(*case, marks=() if case in DAILY else pytest.mark.slow)
    for case in (
        *product(CAUSAL, ("reward", "text"), TRAINED),
        *product(ENCODERS, ("reward",), TRAINED),
    )
]
#: What is refused, by kind, and by task or by what is trained.
REFUSED = {
    # Layers that see the tokens of all sequences in one row,
    ("mixtral", "full"): r"'model\.layers\.0\.mlp\.gate' does not keep sequences apart",
    ("qwen3_moe", "full"): r"'model\.layers\.0\.mlp\.gate' does not keep sequences apart",
    ("opt", "full"): r"layers\.0\.final_layer_norm' does not keep sequences apart",
    # or positions, which are the same for all.
    ("mpnet", "full"): r"'mpnet\.encoder\.relative_attention_bias' does not keep sequences apart",
    # Of which transformers has none with a head of one number.
    ("cohere", "reward"): "CohereConfig.* for this kind of AutoModel: .*SequenceClassification",
    ("granite", "reward"): "GraniteConfig.* for this kind of AutoModel: .*SequenceClassification",
}


def data(task, make_rows):
    rows = make_rows(list(COUNTS))
    if task == "reward":
        return Judgements.from_rows(rows)
    found = [{"user_id": row["user_id"], "text": row["chosen"]} for row in rows]
    return UserTexts.from_placed_rows(("f", i, row) for i, row in enumerate(found))


def loaded(base, folder):
    """The saved model, and what is trained in it by name, in the order of θ."""
    import transformers
    from peft import PeftModel

    settings = base.settings
    kind, more = "AutoModelForCausalLM", {}
    if settings.task == "reward":
        kind, more = "AutoModelForSequenceClassification", {"num_labels": 1}
    auto = getattr(transformers, kind)
    if settings.train == "lora":
        model = auto.from_pretrained(settings.path, **more)
        model = PeftModel.from_pretrained(model, folder, is_trainable=True)
    else:
        model = auto.from_pretrained(folder)
    parameters = dict(model.eval().named_parameters())
    with base.differentiable() as trained:
        return model, [parameters[name] for name in trained]


def losses(model, base, found, rows):
    """Of one user's examples, each by itself, by what transformers computes of one text."""
    tokenizer = base.tokenizer

    def reward(prompt, response):
        if tokenizer.sep_token is None:
            given = tokenizer(f"{prompt}\n\n{response}", return_tensors="pt")
        else:
            kinds = getattr(model.config, "type_vocab_size", 0) > 1
            given = tokenizer(prompt, response, return_token_type_ids=kinds, return_tensors="pt")
        return model(**given).logits[0, 0]

    for row in rows:
        if base.settings.task == "text":
            ids = [*tokenizer(found.texts[row])["input_ids"], tokenizer.eos_token_id]
            yield model(input_ids=torch.tensor([ids]), labels=torch.tensor([ids])).loss
        else:
            chosen, rejected = (reward(found.prompts[row], r) for r in found.responses[row])
            yield -logsigmoid(chosen - rejected)


def clipped_sum(model, trained, base, found):
    """The sum of users' clipped mean gradients (D,) float64, and each example's loss."""
    sum_D, each = torch.zeros(base.dimension, dtype=torch.float64), []
    for first, end in pairwise(found.start_U.tolist()):
        mine = torch.stack([*losses(model, base, found, range(first, end))])
        grads = torch.autograd.grad(mine.mean(), trained)
        own_D = base.to_theta(torch.cat([g.reshape(1, -1) for g in grads], dim=1))[0].double()
        sum_D += own_D * min(1.0, ROUNDING * CLIP / float(own_D.norm()))
        each += mine.tolist()
    return sum_D, each


def apart(sum_D, other_D):
    return float((sum_D - other_D).norm() / other_D.norm())


@pytest.mark.parametrize(("kind", "task", "train"), CASES)
def test_sums_and_losses_are_those_of_transformers(
    language_model, make_rows, tmp_path, kind, task, train
):
    settings = BaseSettings(language_model(kind), train, rank=2, task=task)
    if reason := REFUSED.get((kind, train)) or REFUSED.get((kind, task)):
        with pytest.raises(InputError, match=reason):
            model_on(LanguageBase(settings)).trial_examples(PAIRS).check(BTL)
        return
    base, found = LanguageBase(settings), data(task, make_rows)
    model_on(base).trial_examples(PAIRS).check(BTL)
    examples, theta_D = model_on(base).examples(found), base.random_theta()
    base.write(tmp_path, theta_D.numpy())
    model, trained = loaded(base, tmp_path)
    expected_D, each = clipped_sum(model, trained, base, found)
    model.config._experts_implementation = "eager"  # the quick one has no float64
    exact_D, _ = clipped_sum(model.double(), trained, base, found)
    assert expected_D.norm() > 0.1 * CLIP
    rounded = apart(expected_D, exact_D)
    for together in (False, True):
        every_N = torch.arange(len(each))
        clip_sum = UserClip(CLIP).clip_sum
        found_D = examples.sum_over_users(
            theta_D, every_N, examples.counts_U, clip_sum, BTL, batch_users=together
        )
        assert apart(found_D, expected_D) < SAME.get(kind, USUAL)
        assert apart(found_D, exact_D) < AS_PLAIN * rounded, (apart(found_D, exact_D), rounded)
    if task == "reward":
        ours = BTL.loss(examples.logits_R(theta_D)[:, None], examples.y_R[:, None])
        assert ours.tolist() == pytest.approx(each, rel=1e-5)
    else:
        scored_J = np.diff(examples.tokens.start_T) - 1
        assert examples.accuracy(theta_D.numpy()).loss == pytest.approx(
            np.average(each, weights=scored_J), rel=1e-6
        )
