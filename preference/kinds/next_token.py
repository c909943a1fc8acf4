"""`--task text` and `--task sft`: a causal language model."""

from dataclasses import replace

import numpy as np
import torch

from murmuration.preference.data.files.packed_texts import PackedTexts
from murmuration.preference.data.judgements import LeftOut
from murmuration.preference.data.loading import Data
from murmuration.preference.data.schema import Schema
from murmuration.preference.data.texts import UserTexts
from murmuration.preference.kinds.language import LanguageModel, long_texts
from murmuration.preference.language.examples.language_examples import LanguageExamples
from murmuration.preference.language.examples.next_tokens import NextTokens, own_texts, responses


class ResponsesModel(LanguageModel):
    """Learns the responses of judgements, given their prompts."""

    def examples(self, data: Data, left_out: LeftOut | None = None) -> NextTokens:
        """The tokens of responses."""
        judgements = data.as_judgements("--task sft is not for users' texts")
        return responses(judgements, self.network, left_out)


class TextsModel(LanguageModel):
    """Learns users' own texts."""

    def examples(self, data: Data, left_out: LeftOut | None = None) -> NextTokens:
        """The tokens of texts, in windows."""
        texts = data.as_texts("--task text is not for users' judgements")
        return own_texts(texts, self.network, left_out)

    def texts_of_each(self, schema: Schema) -> int:
        """One: an example is a window."""
        del schema
        return 1

    def longest_examples(self, schema: Schema, most: int) -> LanguageExamples:
        """One made-up user with ``most`` windows: a long text makes several."""
        texts = PackedTexts.pack(long_texts(self.network.settings.max_tokens, most))
        examples = self.examples(UserTexts(("made up",), np.array([0, most]), texts))
        return replace(examples, text_JK=examples.text_JK[:most], start_U=torch.tensor([0, most]))
