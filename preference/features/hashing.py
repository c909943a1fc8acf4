"""Feature maps φ: from a prompt and a response to a vector.

Decisions:

- A feature map is fixed before any private text is seen: n-gram hashing has no state at all, a
  transformer comes trained from elsewhere and stays frozen. Anything fitted to the users' texts
  would need its own privacy budget.
- The text part has norm at most 1 and the length is within ±w, its weight, so the difference of two
  feature vectors is at most √(4 + 4w²) long. However often a text is repeated, and whatever it is
  padded with, its reward stays within a bound known in advance. (`length="log"` has w log(1 +
  10,000) instead of 2w: it goes on paying for length.)
- A map is described by a small JSON-able config, which is what travels to nodes and into saved
  models.

Shape suffixes: R texts, D dimensions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from murmuration.preference.data.errors import InputError, first_line
from murmuration.preference.features.feature_map import SCORER, FeatureMap
from murmuration.preference.features.text_length import check_length, length_feature
from murmuration.preference.features.words import DEFINITION, HASHED
from murmuration.preference.gguf import is_gguf
from murmuration.privacy.plugins import brought


@dataclass(frozen=True)
class HashingFeatures:
    """Hashed word n-grams of the response (signed, l2-normalised) and its length.

    Of scripts without blanks between words each letter is a word (`features.words`).

    The prompt is not used: both responses of a pair share it, and it would cancel in the
    difference.

    Attributes:
        dimension: D; D − 1 n-gram buckets and the length; 1: the length alone.
        ngrams: n-grams of 1 to this many words.
        length_weight: w, by which the length feature is multiplied.
        length: how it counts length, as `--length`; see `text_length.length_feature`.
    """

    dimension: int = 1025
    ngrams: int = 2
    length_weight: float = 0.3
    length: str = "bounded"

    uses_prompt = False  # equal responses have equal features

    def __post_init__(self) -> None:
        if self.dimension < 1 or self.ngrams < 1:
            raise InputError("hashing features need dimension >= 1 and ngrams >= 1")
        check_length(self.length, self.length_weight)

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """Features of R texts: (R, D) float32."""
        phi_RD = np.zeros((len(responses), self.dimension), dtype=np.float32)
        if len(responses) and self.dimension > 1:
            from scipy.sparse import csr_matrix
            from sklearn.feature_extraction.text import HashingVectorizer

            vectorizer = HashingVectorizer(
                n_features=self.dimension - 1,
                ngram_range=(1, self.ngrams),
                token_pattern=HASHED,
                alternate_sign=True,
                norm="l2",
            )
            phi_RD[:, :-1] = csr_matrix(vectorizer.transform(responses)).toarray()
        phi_RD[:, -1] = length_feature(responses, self.length, self.length_weight)
        return phi_RD

    def to_config(self) -> dict:
        """Description for `feature_map`."""
        return {"kind": "hashing", "words": DEFINITION, **asdict(self)}


def finite_features(
    feature_map: FeatureMap,
    prompts: Sequence[str],
    responses: Sequence[str],
    rows: Sequence[int] | None = None,
) -> np.ndarray:
    """Features (R, D) float32, checked to be finite.

    `rows` says in which row, counted from 0, each text stands, if not in its own order. Where a bad
    text is not to stop the others, there is `usable_features`.

    Raises:
        InputError: the shape is not (R, D), or a feature is not finite (names the row, counted from
            1).
    """
    phi_RD = _features(feature_map, prompts, responses)
    bad = np.flatnonzero(~np.isfinite(phi_RD).all(axis=1))
    if bad.size:
        row = int(bad[0]) if rows is None else rows[bad[0]]
        raise InputError(
            f"features of row {row + 1} are NaN or infinite ({bad.size} such texts); "
            f"check the feature model"
        )
    return phi_RD


def usable_features(
    feature_map: FeatureMap, prompts: Sequence[str], responses: Sequence[str]
) -> tuple[np.ndarray, list[str]]:
    """Features (R, D) float32, and why there are none of a text; "" where there are. Those of the
    others are zeros.

    A feature map that cannot take every text says by a method ``unreadable`` why.

    Raises:
        InputError: the shape is not (R, D), which no text decides.
    """
    unreadable = getattr(feature_map, "unreadable", None)
    reasons = [""] * len(responses) if unreadable is None else unreadable(prompts, responses)
    taken = [text for text, reason in enumerate(reasons) if not reason]
    given = [prompts[text] for text in taken], [responses[text] for text in taken]
    phi_TD = _features(feature_map, *given)
    phi_RD = np.zeros((len(responses), feature_map.dimension), dtype=np.float32)
    phi_RD[taken] = phi_TD
    for text in np.flatnonzero(~np.isfinite(phi_RD).all(axis=1)).tolist():
        reasons[text], phi_RD[text] = "a text with NaN or infinite features", 0.0
    return phi_RD, reasons


def _features(
    feature_map: FeatureMap, prompts: Sequence[str], responses: Sequence[str]
) -> np.ndarray:
    """Features (R, D) float32; InputError for another shape."""
    phi_RD = np.asarray(feature_map(prompts, responses), dtype=np.float32)
    expected = (len(responses), feature_map.dimension)
    if phi_RD.shape != expected:
        raise InputError(f"features have shape {phi_RD.shape}, not {expected}")
    return phi_RD


def feature_map(config: Mapping, *, keep: bool = True) -> FeatureMap:
    """The feature map that a config describes (`kind` and the arguments of its class; `words` is
    the definition of words, if length counts them; `strengths` a list beside them, `scorer` a
    public model whose score is one more). It caches states of texts unless ``keep`` is false
    (`preference.features.frozen_states`).

    Raises:
        InputError: an unknown kind or argument, an encoder that cannot be loaded, or another
            definition of words.
    """
    from murmuration.preference.features.encoders import EncoderFeatures
    from murmuration.preference.features.language_head import KIND as LANGUAGE_HEAD
    from murmuration.preference.features.language_head import LanguageHead
    from murmuration.preference.features.language_states import KIND as LANGUAGE_STATES
    from murmuration.preference.features.language_states import LanguageStates
    from murmuration.preference.features.strengths import STRENGTHS, Strengths

    if SCORER in config:
        return _scored(config, keep)
    if STRENGTHS in config:
        text = {name: value for name, value in config.items() if name != STRENGTHS}
        if text.get("kind") not in ("hashing", "encoder", LANGUAGE_STATES):
            raise InputError(f"{STRENGTHS} stand beside hashing, an encoder or states alone")
        return Strengths(config[STRENGTHS], feature_map(text, keep=keep))
    kinds = {
        "hashing": HashingFeatures,
        "encoder": EncoderFeatures,
        LANGUAGE_HEAD: LanguageHead,
        LANGUAGE_STATES: LanguageStates,
    }
    arguments = dict(config)
    kind = arguments.pop("kind", None)
    brings = brought("murmuration.features")
    if kind not in kinds and kind not in brings:
        known = ", ".join((*kinds, *brings))
        raise InputError(f"features of kind {kind!r}: known kinds are {known}")
    counts_words = kind in kinds and kind != LANGUAGE_HEAD
    if counts_words and (counted := arguments.pop("words", None)) != DEFINITION:
        raise InputError(
            f"{kind} features count words as {counted!r}, and this version as {DEFINITION!r}: "
            "another version made them; train anew"
        )
    if not keep and kind in ("encoder", LANGUAGE_STATES):
        arguments["keep"] = False
    try:
        return (kinds[kind] if kind in kinds else brings[kind].load())(**arguments)
    except TypeError as error:
        raise InputError(f"{kind} features: {first_line(error)}") from error


def _scored(config: Mapping, keep: bool) -> FeatureMap:
    """Features with a scorer's score in front; InputError as of `feature_map`."""
    from murmuration.preference.features.scorer import Scored, scorer_of

    others = {name: value for name, value in config.items() if name != SCORER}
    described = config[SCORER]
    if not isinstance(described, Mapping):
        raise InputError("features with a scorer: it is described by no mapping")
    its_own = described.get("features")
    if its_own is not None:
        if not isinstance(its_own, Mapping) or SCORER in its_own:
            raise InputError("a scorer that stands on another scorer")
        its_own = feature_map(its_own, keep=keep)
    return Scored(scorer_of(described, its_own), feature_map(others, keep=keep))


#: `minilm` where it is installed, else `hashing`: an option of commands, never of a run.
AUTO = "auto"


def chosen_features(option: str) -> str:
    """The features that `--features auto` selects on this machine; anything else unchanged.

    The choice depends on what is installed, and on no data.
    """
    if option.strip() != AUTO:
        return option
    from murmuration.preference.language.checkpoint import MINILM, has_minilm

    return MINILM if has_minilm() else "hashing"


def parse_features(option: str, length: str = "bounded", items: str = "") -> dict:
    """The config that options name: `hashing`, `hashing:D` with D features, `minilm`, the folder
    or hub name of a transformer encoder, or `smollm2` or a GGUF file; `strengths` of the list that
    ``items`` names, or `strengths+` and one of the others; and how length counts.

    A folder is written down by its absolute path, since nodes may run elsewhere. Raises InputError
    for a folder that is not there; whether the encoder itself can be loaded turns out in
    `feature_map`.
    """
    from murmuration.preference.features.strengths import STRENGTHS, digests_in, text_features

    strengths, option = text_features(option)
    if strengths:
        described = parse_features(option if "+" in strengths else "hashing:1", length)
        return {**described, STRENGTHS: digests_in(items)}
    if option == "hashing":
        return HashingFeatures(length=length).to_config()
    if option == AUTO:
        raise InputError("--features auto is for commands; name what it took: hashing or minilm")
    kind, _, dimension = option.partition(":")
    if kind == "hashing" and dimension.isdecimal():
        return HashingFeatures(dimension=int(dimension), length=length).to_config()
    if is_gguf(option):
        from murmuration.preference.features.language_states import states_config

        return states_config(option, length)
    from murmuration.preference.features.encoders import resolve_encoder

    return {
        "kind": "encoder",
        "path": resolve_encoder(option),
        "words": DEFINITION,
        "length": length,
    }
