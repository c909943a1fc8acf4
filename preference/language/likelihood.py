"""A saved language model that says the next token: loading it, and scoring responses with it.

Its score of a response is the logarithm, in nats, of how likely the response is after the prompt,
its end included: what the model was trained to raise. Long responses score lower than short ones.

    from murmuration.preference.language.likelihood import load_scorer
    load_scorer("r/model").score(["Spend or save?"], ["Put it aside for now."])
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from murmuration.preference.base_names import resolve_base
from murmuration.preference.data.errors import InputError
from murmuration.preference.gguf import is_gguf
from murmuration.preference.language.adapter_config import ADAPTER
from murmuration.preference.language.adapters import with_adapter
from murmuration.preference.language.base.network import MOST_LOGITS, context
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.checkpoint import check_same
from murmuration.preference.language.loading import contents_of, load_causal
from murmuration.preference.language.machine import usual_batch, usual_device
from murmuration.preference.language.reward import (
    SavedReward,
    base_of_adapter,
    is_language_model,
    read_about,
    system_of,
)
from murmuration.preference.language.tokens import TextTokens, length_batches
from murmuration.preference.online import is_of_hub
from murmuration.preference.reward import RewardModel
from murmuration.preference.scoring import Text, scores_of, strings_of
from murmuration.privacy.regular_files import read_regular


class SavedLikelihood:
    """A model that a run with `--task text` or `sft` saved.

    Attributes:
        texts: how texts are written down for it.
    """

    def __init__(self, model: torch.nn.Module, texts: TextTokens) -> None:
        self._device = usual_device()
        self._model, self.texts = model.eval().to(self._device), texts

    @classmethod
    def load(
        cls, folder: str | os.PathLike, base: str = "", system: str | None = None
    ) -> "SavedLikelihood":
        """Load what `load_next_token` takes; raises InputError as it does."""
        return cls(*load_next_token(folder, base, system))

    def score(self, prompt: Text | Sequence[Text], response: Text | Sequence[Text]) -> Any:
        """The log-likelihood of one response (float), or of R, as `score_batch`."""
        return scores_of(self.score_batch, prompt, response)

    def score_batch(self, prompts: Sequence[Text], responses: Sequence[Text]) -> np.ndarray:
        """Log-likelihoods of R responses, each after its prompt, (R,) float64.

        Computed in batches of texts of about equal length: last digits may depend on them.
        """
        asked, said = strings_of(prompts, responses)
        tokens, result = self.texts(asked, said, ended=True), np.empty(len(said))
        words: Any = self._model.get_output_embeddings().weight  # type: ignore[operator]
        most = min(usual_batch(self._device), max(1, MOST_LOGITS // len(words)))
        for texts_R in length_batches(tokens.lengths_T, most):
            # What fills up stands on the right, which reaches no token of a causal model.
            ids_RL = tokens.batch(texts_R, self.texts.tokenizer.pad_token_id)[0].to(self._device)
            with torch.no_grad():
                logits_RLV = self._model(input_ids=ids_RL).logits
            for row, text in enumerate(texts_R.tolist()):
                first, end = max(1, int(tokens.second_T[text])), int(tokens.lengths_T[text])
                log_LV = logits_RLV[row, first - 1 : end - 1].double().log_softmax(dim=1)
                result[text] = float(log_LV.gather(1, ids_RL[row, first:end, None]).sum())
        return result


def load_next_token(
    path: str | os.PathLike, given: str = "", system: str | None = None
) -> tuple[Any, TextTokens]:
    """A causal model and how texts are written down for it: what a run saved, with the LoRA layers
    if it is an adapter; or a base, by folder or name on a hub. ``given`` is what an adapter is put
    on, where that is not found by itself; ``system`` the system prompt, by default the one that it
    was trained with.

    Raises:
        InputError: it is a reward or an encoder, or what it needs is not there.
    """
    source, max_tokens, adapter = str(path), BaseSettings.max_tokens, None
    if is_language_model(path):
        folder, base = Path(path), read_about(Path(path))["base"]
        if base.get("task", "reward") == "reward":
            raise InputError(f"{path}: a language model of --task reward, which says no next token")
        max_tokens = base["max_tokens"]
        if (folder / ADAPTER).exists():
            source, adapter = base_of_adapter(folder, base, given), folder
            check_same(source, contents_of(source).digest, base.get("digest", ""))
    source = resolve_base(source)
    tokenizer, model = load_causal(source)
    system = system_of(path) if system is None else system
    settings = BaseSettings(source, "full", max_tokens=max_tokens, system=system)
    texts = TextTokens(tokenizer, context(settings, model), system, keep=False)
    return with_adapter(model, adapter) if adapter else model, texts


def load_scorer(
    folder: str | os.PathLike, base: str = "", system: str | None = None
) -> RewardModel | SavedReward | SavedLikelihood:
    """The model in a folder, whatever it was trained for: a reward, or the next token; or a base
    that says the next token. ``base`` as of `RewardModel.load`, ``system`` as of `load_next_token`.

    Raises:
        InputError: it is not a model, or what it needs is not there; or a system prompt is given
            for a reward, which has the one that it was trained with.
    """
    if is_language_model(folder):
        task = read_about(Path(folder))["base"].get("task", "reward")
        if task != "reward":
            return SavedLikelihood.load(folder, base, system)
    elif is_base(folder) or _is_owned(os.fspath(folder)):
        return SavedLikelihood.load(folder, base, system)
    if system is not None:
        raise InputError("--system: a reward has the system prompt that it was trained with")
    return RewardModel.load(folder, base)


def _is_owned(name: str) -> bool:
    """True if this names a hub's model with an owner that is no folder here; otherwise it is
    probably a misspelled folder.
    """
    return "/" in name and is_of_hub(name) and not Path(name).parent.exists()


def is_base(path: str | os.PathLike) -> bool:
    """True if this names a base: a GGUF file, or a folder as transformers saves one."""
    if is_gguf(os.fspath(path)):
        return True
    try:
        config = json.loads(read_regular(Path(path) / "config.json"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and "model_type" in config
