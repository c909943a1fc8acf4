"""Features from a frozen language model: the mean of its states, of a prompt and a response.

Prompt and response are read as the model's chat template writes them; a text is the mean of its
tokens' states behind the first ``layer`` layers and the model's last norm. Nothing is trained in
the model, and nothing is fitted to users' texts.

States of a language model all lie about one direction (Ethayarajh, *How Contextual are
Contextualized Word Representations?*, 2019): scaled to norm 1 as they are, two texts would hardly
differ, and noise, whose size is that of the bound, would cover what is left. So the mean over some
public exchanges, which stand below, is taken off first (as Mu and Viswanath, *All-but-the-Top*,
2018, take off the mean of all words). It is the same for all users and depends on no user's text.

Shape suffixes: R texts, L tokens, D dimensions.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import torch

from murmuration.preference.base_names import resolve_base
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.frozen_states import FrozenStates
from murmuration.preference.features.text_length import check_length, length_feature
from murmuration.preference.features.words import DEFINITION
from murmuration.preference.gguf import SMOLLM2
from murmuration.preference.language.base.layers import keep_layers
from murmuration.preference.language.checkpoint import check_same
from murmuration.preference.language.loading import contents_of, load_causal
from murmuration.preference.language.tokens import TextTokens, unbroken

KIND = "language-states"
#: Layers of known models that are read, where nobody says; of others all.
LAYERS = {SMOLLM2: 18}
#: Public exchanges, about nothing in particular, whose mean is where texts are counted from.
EXCHANGES = (
    ("Should we leave early?", "Yes. The roads will be empty, and we can rest when we are there."),
    ("Is it worth the price?", "I do not think so; there are cheaper ones that last as long."),
    ("What do you think of the plan?", "It could work, but somebody has to pay for it first."),
    ("Are old books better than new ones?", "Some are, because only the good ones were kept."),
    ("Is it better to work alone?", "No! People who help each other learn much more from it."),
    ("Should children decide for themselves?", "They should be heard, and adults should decide."),
    (
        "Why is the sky blue?",
        "Air scatters blue light more than red, so blue comes from all sides.",
    ),
    ("How do I boil an egg?", "Put it into boiling water and wait for seven minutes."),
    ("Can you help me with my letter?", "Of course. Tell me who it is for and what you want."),
    ("Is this law fair?", "It treats everybody alike on paper, but it is the poor who pay for it."),
    ("Do machines make us lazy?", "lol no, they do the boring stuff so we can do other things"),
    ("What happened in the meeting?", "Nothing was decided. They will meet again next week."),
)


class LanguageStates:
    """Mean states (centred, of norm 1) of a frozen language model, and the response's length.

    In float32. A text's features depend on nothing but the text, to the last bit on one machine;
    its states are computed once and kept on disk (`preference.features.frozen_states`). A text that
    is too long loses its end. Needs the extra `murmuration-rlhf[lm]`.

    Args:
        path: a folder, a GGUF file or `smollm2`.
        layer: the number of layers used; 0: all.
        max_tokens: cap on the tokens of prompt and response together.
        length_weight, length: as in `HashingFeatures`.
        digest: SHA-256 of the model; empty: any.
        keep: whether states of texts are cached.

    Raises:
        InputError: the model cannot be loaded, or is another one than ``digest`` says.
    """

    uses_prompt = True

    def __init__(
        self,
        path: str,
        *,
        layer: int = 0,
        max_tokens: int = 256,
        length_weight: float = 0.3,
        length: str = "bounded",
        digest: str = "",
        keep: bool = True,
    ) -> None:
        if max_tokens < 8:
            raise InputError(f"max_tokens must be at least 8, not {max_tokens}")
        check_length(length, length_weight)
        self.path, self.layer, self.max_tokens = resolve_base(path), layer, max_tokens
        self.length_weight, self.length = length_weight, length
        self.digest = contents_of(self.path).digest
        check_same(self.path, self.digest, digest)
        self._tokenizer, model = load_causal(self.path)
        check_same(self.path, contents_of(self.path).digest, self.digest)  # not replaced meanwhile
        body = model.base_model.eval().requires_grad_(False)
        if layer:
            keep_layers(body, layer, self.path)
        self._width = int(body.config.hidden_size)
        positions = getattr(body.config, "max_position_embeddings", None) or max_tokens
        self._limit = min(max_tokens, positions)
        self._texts = TextTokens(self._tokenizer, self._limit)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        body.to(device)
        self._states = FrozenStates(
            lambda inputs: body(**inputs, use_cache=False).last_hidden_state,
            lambda states_LD: states_LD.mean(0),
            device=device,
            width=self._width,
            words=len(body.get_input_embeddings().get_parameter("weight")),
            limit=self._limit,
            terms=[KIND, self.digest, str(layer)] if keep else (),
        )

    @property
    def dimension(self) -> int:
        """D: the width of a state and the length."""
        return self._width + 1

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """Features of R texts: (R, D) float32."""
        phi_RD = np.zeros((len(responses), self.dimension), dtype=np.float32)
        phi_RD[:, -1] = length_feature(responses, self.length, self.length_weight)
        if not len(responses):
            return phi_RD
        centred_RD = self._states.pooled(self._written(prompts, responses)) - self._centre_D
        norm_R1 = np.linalg.norm(centred_RD, axis=1, keepdims=True)
        phi_RD[:, :-1] = centred_RD / np.maximum(norm_R1, 1e-12)
        return phi_RD

    def to_config(self) -> dict:
        """Description for `preference.features.hashing.feature_map`."""
        return {
            "kind": KIND,
            "path": self.path,
            "layer": self.layer,
            "max_tokens": self.max_tokens,
            "words": DEFINITION,
            "length_weight": self.length_weight,
            "length": self.length,
            "digest": self.digest,
        }

    @cached_property
    def _centre_D(self) -> np.ndarray:
        prompts, responses = zip(*EXCHANGES, strict=True)
        return self._states.pooled(self._written(prompts, responses)).mean(0)

    def _written(
        self, prompts: Sequence[str], responses: Sequence[str]
    ) -> Mapping[str, Sequence[Sequence[int]]]:
        whole = self._texts.whole(prompts, responses)
        with unbroken():
            ids = self._tokenizer(
                whole, add_special_tokens=not self._texts.chat, truncation=True,
                max_length=self._limit,
            )["input_ids"]  # fmt: skip
        return {"input_ids": ids}


def states_config(option: str, length: str) -> dict:
    """The config of the features that ``--features`` names by a GGUF file or `smollm2`.

    Raises:
        InputError: there is no such model, or it cannot be converted.
    """
    path = resolve_base(option)
    return {
        "kind": KIND,
        "path": path,
        "layer": LAYERS.get(option, 0),
        "words": DEFINITION,
        "length": length,
    }
