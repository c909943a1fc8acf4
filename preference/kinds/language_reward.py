"""`--task reward`: a language model that gives a response its reward."""

from collections.abc import Sequence

import numpy as np
import torch

from murmuration.preference.data.judgements import LeftOut
from murmuration.preference.data.loading import Data
from murmuration.preference.data.schema import Schema
from murmuration.preference.kinds.language import LanguageModel
from murmuration.preference.language.examples.judgements import TokenExamples, token_examples
from murmuration.preference.language.examples.language_examples import LanguageExamples
from murmuration.preference.language.reward import finite_theta, rewards_of
from murmuration.preference.language.tokens import Tokens


class LanguageRewardModel(LanguageModel):
    """Rewards by a head on the last token."""

    def examples(self, data: Data, left_out: LeftOut | None = None) -> TokenExamples:
        """The tokens of judgements."""
        judgements = data.as_judgements("--task reward is not for users' texts")
        return token_examples(judgements, self.network, left_out)

    def scores(
        self, theta_ID: Sequence[np.ndarray], prompts: Sequence[str], responses: Sequence[str]
    ) -> np.ndarray:
        """Rewards at each θ, (I, R), in batches of texts of about equal length."""
        reward_IR = np.empty((len(theta_ID), len(responses)))
        tokens = self.network.texts(prompts, responses)
        for place, theta_D in enumerate(theta_ID):
            self.network.put(finite_theta(theta_D, self.dimension))
            reward_IR[place] = rewards_of(self.network, tokens)
        return reward_IR

    def _of_tokens(
        self, tokens: Tokens, text_JK: np.ndarray, start_U: torch.Tensor, schema: Schema
    ) -> LanguageExamples:
        """Judgements in which the first response is preferred."""
        y_R = torch.ones(len(text_JK) * (schema.responses - 1))
        return TokenExamples(self.network, tokens, text_JK, start_U, y_R, kind=schema.kind)
