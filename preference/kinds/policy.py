"""`--task policy`: a language model that learns from judgements which responses to say."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from murmuration.preference.data.judgements import LeftOut
from murmuration.preference.data.loading import Data
from murmuration.preference.data.schema import Schema
from murmuration.preference.kinds.language import LanguageModel, long_judgements
from murmuration.preference.language.examples.policies import (
    PolicyExamples,
    policy_examples,
    policy_rewards,
)
from murmuration.preference.language.reference_cache import References
from murmuration.preference.language.reward import finite_theta


class PolicyModel(LanguageModel):
    """Says responses; its rewards are those that it stands for, over its reference."""

    def examples(self, data: Data, left_out: LeftOut | None = None) -> PolicyExamples:
        """The tokens of judgements, with their reference."""
        judgements = data.as_judgements("--task policy is not for users' texts")
        return policy_examples(judgements, self.network, left_out)

    def scores(
        self, theta_ID: Sequence[np.ndarray], prompts: Sequence[str], responses: Sequence[str]
    ) -> np.ndarray:
        """The implicit rewards of the policy at each θ, (I, R)."""
        rewards = [
            policy_rewards(self.network, finite_theta(theta_D, self.dimension), prompts, responses)
            for theta_D in theta_ID
        ]
        return np.array(rewards, dtype=np.float64).reshape(len(theta_ID), len(responses))

    def longest_examples(self, schema: Schema, most: int) -> PolicyExamples:
        """A made-up user whose reference is computed in the trial with the rest."""
        limit = self.network.settings.max_tokens
        examples = self.examples(long_judgements(limit, schema, most))
        return replace(examples, kept=References())
