"""Win rates of models' answers against those of one other model, to the same prompts, by one judge.

Decisions:
- The first answer of a model is compared with the first of the other, the second with the second.
- The divergence of a model from the other is the mean of log pi - log ref over answers that the
  model wrote: an unbiased estimate of KL(pi || ref) of whole answers if they were drawn at
  temperature 1 from everything. It is only taken where both read the same texts as the same tokens.

Legend: T prompts, N answers to each.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from murmuration.alignment.comparisons.intervals import PromptBootstrap
from murmuration.alignment.comparisons.win_rate import Estimate, wilson
from murmuration.alignment.judges import Judge
from murmuration.alignment.pool import write_samples, writer_of
from murmuration.preference.base_names import without_folders
from murmuration.preference.data.cells import shortened
from murmuration.preference.data.errors import InputError, first_line
from murmuration.preference.data.loading import load_responses
from murmuration.preference.features.words import words_of
from murmuration.preference.language.generation import PublicSeed, Sampling, Writer
from murmuration.preference.language.likelihood import SavedLikelihood, load_next_token
from murmuration.privacy.strict_json import finite
from murmuration.server.record.lineage import lineage_of_model
from murmuration.server.record.marks import mark_of_model, mark_of_rows, mark_of_served

FORMAT = "murmuration-comparison-1"
_FILE = re.compile(r".*\.jsonl(\.gz)?", re.IGNORECASE | re.DOTALL)
_UNREADABLE = 0.3  # as a share of answers; beyond, this is told
_SIDES = 2**16  # more models than anybody compares: a sample and a model as one number

Answers = list[list[str]]


@dataclass(frozen=True, kw_only=True)
class ComparisonRequest:
    """The settings of a comparison.

    Attributes:
        models: folders or names of models, or `.jsonl` files of answers.
        against: the one that all are compared with, likewise.
        prompts: T of them; may repeat.
        source: where these are from, for the result.
        samples: answers to each.
        sampling: how they are drawn.
        kl: whether to estimate divergences.
        seed: of answers, intervals and what a page shows.
        writer: address of the server that has these models (files excepted); or empty.
        system: the system prompt of all models (files excepted); None: the one each was trained
            with.

    Raises:
        InputError: a value out of range.
    """

    models: Sequence[str]
    against: str
    prompts: Sequence[str]
    source: str
    samples: int = 1
    sampling: Sampling = field(default_factory=Sampling)
    kl: bool = True
    seed: PublicSeed = field(default_factory=PublicSeed)
    writer: str = ""
    system: str | None = None

    def __post_init__(self) -> None:
        if not self.models:
            raise InputError("name a model to compare")
        if self.samples < 1:
            raise InputError(f"--num-generations must be at least 1; got {self.samples}")
        if len(self.prompts) < 2:
            raise InputError("there must be two prompts at least")


@dataclass(frozen=True)
class Side:
    """A model and its answers.

    Attributes:
        model: as it was named.
        answers_TN: N to each of T prompts.
        log_ratio_TN: log pi - log ref of each, nats; NaN where it does not fit into the context;
            None without an estimate.
        no_kl: the reason why there is none.
        cut_off: the number of truncated answers; None for a file.
    """

    model: str
    answers_TN: Answers
    log_ratio_TN: np.ndarray | None = None
    no_kl: str = ""
    cut_off: int | None = None


@dataclass(frozen=True)
class Comparison:
    """The outcome of a comparison: ``result`` is the content of ``result.json``; ``wins`` are 1, 0
    or 0.5, (T, N), of each model.
    """

    asked: ComparisonRequest
    sides: Sequence[Side]
    against: Side
    wins: Sequence[np.ndarray]
    result: Mapping[str, Any] = field(repr=False)


def is_answers(named: str) -> bool:
    """True if a model is a file of answers."""
    return _FILE.fullmatch(str(named)) is not None


def prompts_in(path: str, limit: int | None = None) -> list[str]:
    """The different prompts of a file of answers, in their order.

    Raises:
        InputError: it cannot be read, or has none.
    """
    return list(_answers_in(path))[:limit]


def read_answers(path: str, prompts: Sequence[str], samples: int) -> Answers:
    """Answers of a file to T prompts: of each prompt's the first ``samples``, in their order.

    A prompt that is asked m times shares the file's answers to it out in m equal parts, which is
    how ``murmuration respond`` writes them.

    Raises:
        InputError: it cannot be read, or has too few answers to some prompt.
    """
    there, asked = _answers_in(path), Counter(prompts)
    short = [prompt for prompt in asked if len(there.get(prompt, ())) < samples * asked[prompt]]
    if short:
        need, has = samples * asked[short[0]], len(there.get(short[0], ()))
        raise InputError(
            f"{path}: {len(short):,} of {len(asked):,} prompts have too few answers there, the "
            f"first {has:,} of {need:,}: {shortened(short[0], 60)!r}. Lower --num-generations, or "
            "take --prompts that it answers"
        )
    seen: Counter[str] = Counter()
    result: Answers = []
    for prompt in prompts:
        part = len(there[prompt]) // asked[prompt]
        at = seen[prompt] * part
        result.append(there[prompt][at : at + samples])
        seen[prompt] += 1
    return result


def _answers_in(path: str) -> dict[str, list[str]]:
    """Each prompt's answers."""
    result: dict[str, list[str]] = {}
    for prompt, response in load_responses(path):
        result.setdefault(prompt, []).append(response)
    if not result:
        raise InputError(f"{path}: holds no answers")
    return result


Said = Callable[[str], None]


def write_sides(
    asked: ComparisonRequest,
    said: Said = lambda text: None,
    kept: Callable[[int, Side], None] = lambda place, side: None,
) -> tuple[list[Side], Side]:
    """Get each model's answers, and those of the one that they are compared with.

    Args:
        asked: what is compared.
        said: is told what is being done.
        kept: is given each side when it is there, with its place from 1 on; 0 is the other one's.

    Raises:
        InputError: a model cannot be loaded or writes nothing, or a file does not fit the prompts.
    """
    for path in (asked.against, *asked.models):  # what is quick to refuse comes first
        if is_answers(path):
            read_answers(path, asked.prompts, asked.samples)
    reference = None
    if is_answers(asked.against):
        against = Side(asked.against, read_answers(asked.against, asked.prompts, asked.samples))
    else:
        against, reference = _written(asked, asked.against, 1, said)
    kept(0, against)
    if not asked.kl or all(map(is_answers, asked.models)):
        reference = None  # and its memory is free
    sides = []
    for place, path in enumerate(asked.models, start=1):
        sides.append(_side(asked, path, place, reference, said))
        kept(place, sides[-1])
    return sides, against


def _side(
    asked: ComparisonRequest, path: str, place: int, reference: SavedLikelihood | None, said: Said
) -> Side:
    if is_answers(path):
        return Side(
            path,
            read_answers(path, asked.prompts, asked.samples),
            no_kl="answers are from a file, without the model",
        )
    # The other one draws by number 1, whoever is compared with it; the models by 0, 2, 3, …
    side, model = _written(asked, path, place if place > 1 else 0, said)
    if not asked.kl:
        return replace(side, no_kl="not asked for")
    if model is None:
        return replace(side, no_kl="a server wrote its answers, without the model")
    if reference is None:
        return replace(side, no_kl=f"{asked.against} is a file, without the model")
    said(f"{path}: how likely its answers are")
    prompts = [prompt for prompt in asked.prompts for _ in range(asked.samples)]
    ratio = log_ratios(model, reference, prompts, [*chain.from_iterable(side.answers_TN)])
    if ratio is None:
        return replace(side, no_kl=f"texts are other tokens there than for {asked.against}")
    return replace(side, log_ratio_TN=ratio.reshape(-1, asked.samples))


def _written(
    asked: ComparisonRequest, path: str, number: int, said: Said
) -> tuple[Side, SavedLikelihood | None]:
    model = None
    if asked.writer:
        writer = writer_of(path, asked.writer, asked.system)
    else:
        said(f"{path}: loading")
        network, texts = load_next_token(path, system=asked.system)
        model, writer = SavedLikelihood(network, texts), Writer(network, texts)
    answers_TN = write_samples(
        writer,
        asked.prompts,
        asked.sampling,
        [(asked.seed.value, number + _SIDES * sample) for sample in range(asked.samples)],
        lambda done, of: said(f"{path}: {done:,} of {of:,} answers"),
    )
    return Side(path, answers_TN, cut_off=writer.cut_off), model


def log_ratios(
    policy: SavedLikelihood,
    reference: SavedLikelihood,
    prompts: Sequence[str],
    answers: Sequence[str],
) -> np.ndarray | None:
    """log pi - log ref of answers after their prompts, nats; NaN of one that does not fit into a
    context; None if the two models read them as other tokens.

    Their ends are counted, also of answers that broke off.
    """
    fits = policy.texts.fits(prompts, answers, ended=True)
    fits &= reference.texts.fits(prompts, answers, ended=True)
    result = np.full(len(answers), np.nan)
    if not fits.any():
        return result
    kept = [
        (prompt, answer) for prompt, answer, fit in zip(prompts, answers, fits, strict=True) if fit
    ]
    said = [prompt for prompt, _ in kept], [answer for _, answer in kept]
    mine, its = (model.texts(*said, ended=True) for model in (policy, reference))
    words, other_words = (m.texts.tokenizer.get_vocab() for m in (policy, reference))
    same = words == other_words and np.array_equal(mine.start_T, its.start_T)
    same = same and np.array_equal(mine.second_T, its.second_T)
    if not (same and np.array_equal(mine.ids, its.ids)):
        return None
    result[fits] = policy.score(*said) - reference.score(*said)
    return result


def compare(
    asked: ComparisonRequest, sides: Sequence[Side], against: Side, judge: Judge
) -> Comparison:
    """Let the judge compare each model's answers with the other's.

    Raises:
        InputError: as the judge does.
    """
    flat = [prompt for prompt in asked.prompts for _ in range(asked.samples)]
    other = [*chain.from_iterable(against.answers_TN)]
    won = [
        judge.preferred(flat, [*chain.from_iterable(side.answers_TN)], other).reshape(
            -1, asked.samples
        )
        for side in sides
    ]
    drawn = PromptBootstrap(asked.prompts, asked.seed.value)
    figures = [
        {
            **_figures(side, judge, flat, asked.writer),
            "win_rate": drawn.share(wins_TN),
            "length_controlled": drawn.length_controlled(wins_TN, _longer(side, against)),
            "wilson": wilson(wins_TN.mean(1)),
            "wins": int((wins_TN == 1).sum()),
            "ties": int((wins_TN == 0.5).sum()),
            "losses": int((wins_TN == 0).sum()),
            **_divergence(side, drawn),
        }
        for side, wins_TN in zip(sides, won, strict=True)
    ]
    result = {
        "format": FORMAT,
        "prompts": {
            "source": asked.source,
            "count": len(asked.prompts),
            "different": drawn.clusters,
        },
        "samples": asked.samples,
        "sampling": asdict(asked.sampling),
        "writer": asked.writer,
        "system": asked.system,
        "seed": asked.seed.value,
        "judge": judge.about(),
        "against": _figures(against, judge, flat, asked.writer),
        "models": figures,
        "beside_the_first": [
            {"model": side.model, "win_rate_difference": drawn.mean(wins_TN - won[0])}
            for side, wins_TN in zip(sides[1:], won[1:], strict=True)
        ],
    }
    for each in figures:
        if says_nothing(each, result):  # half of every tie would look like a result
            nothing = Estimate(math.nan, math.nan, math.nan)
            each |= dict.fromkeys(("win_rate", "length_controlled", "wilson"), nothing)
    result["caveats"] = _caveats(asked, sides, result)
    return Comparison(asked, sides, against, won, finite(result, lambda _: None))


def _longer(side: Side, other: Side) -> np.ndarray:
    """The difference in characters between answers and the other's, (T, N) float64."""
    lengths = [[[len(text) for text in row] for row in each.answers_TN] for each in (side, other)]
    one_TN, other_TN = np.array(lengths, dtype=float)
    return one_TN - other_TN


def _figures(side: Side, judge: Judge, prompts: Sequence[str], writer: str) -> dict[str, Any]:
    answers = [*chain.from_iterable(side.answers_TN)]
    words = [len(words_of(answer)) for answer in answers]
    result = {"model": side.model, "words": float(np.mean(words))}
    result["cut_off"] = None if side.cut_off is None else side.cut_off / len(answers)
    result["promise"] = promise_told(side.model, writer)
    return result | judge.figures(prompts, answers)


def mark_told(path: str, writer: str = "") -> dict[str, str]:
    """The entries that identify the model in rows of answers: of a folder or a server's model; of a
    file of answers those in its rows.
    """
    if not is_answers(path):
        if writer:
            return mark_of_served("the model", path, "", "")
        return mark_of_model(path)
    return mark_of_rows(path)


def promise_told(path: str, writer: str = "") -> str:
    """The guarantee for users behind a model, a server's model, or the models that wrote a file of
    answers.
    """
    if writer and not is_answers(path) and not Path(path).expanduser().is_dir():
        return "not known: a server wrote, which shows no folder"
    if is_answers(path):
        names = " ".join(mark_of_rows(path).values())
        return f"not known: models of private runs wrote it ({names})" if names else "none stated"
    try:
        promise = lineage_of_model("model", path, "take its folder as its run left it")
    except InputError as error:
        return f"not known: {without_folders(first_line(error))}"
    return str(promise) if promise.runs or promise.public else "none stated"


def _divergence(side: Side, drawn: PromptBootstrap) -> dict[str, Any]:
    if side.log_ratio_TN is None:
        return {"kl": None, "no_kl": side.no_kl}
    return {"kl": drawn.mean(side.log_ratio_TN), "no_kl": ""}


def _caveats(
    asked: ComparisonRequest, sides: Sequence[Side], result: Mapping[str, Any]
) -> list[str]:
    found = [*result["judge"]["caveats"]]
    if blind := [each["model"] for each in result["models"] if says_nothing(each, result)]:
        found.append(
            f"No answer of {', '.join(blind)} can be read, and none of "
            f"{result['against']['model']}: there is no win rate."
        )
    for each in (*result["models"], result["against"]):
        share = each.get("unreadable", [0.0])[0]
        if share > _UNREADABLE:
            found.append(
                f"{100 * share:.0f} % of the answers of {each['model']} cannot be read: wins say "
                "little about its quality."
            )
    for each in (*result["models"], result["against"]):
        if each["cut_off"]:
            found.append(
                f"{100 * each['cut_off']:.1f} % of the answers of {each['model']} were cut off at "
                f"--max-new-tokens {asked.sampling.max_new_tokens}."
            )
    if asked.writer:
        found.append(f"Prompts were sent to {asked.writer}, which wrote the answers.")
    found.append(
        "Intervals are for other prompts of this kind and other draws of the same models, at 95 %; "
        "another training run of a model may do better or worse than they say."
    )
    if len(sides) > 1:
        found.append("Each interval is for one model: the best of several looks better by chance.")
    if any(side.log_ratio_TN is not None for side in sides):
        drawn = asked.sampling
        if drawn.temperature != 1 or drawn.top_p != 1:
            found.append(
                f"Answers were drawn at temperature {drawn.temperature:g} and top-p "
                f"{drawn.top_p:g}, so the mean log-ratio is that of what was said, and not the "
                "divergence of the models, for which both are 1."
            )
        lost = sum(
            int(np.isnan(side.log_ratio_TN).sum())
            for side in sides
            if side.log_ratio_TN is not None
        )
        if lost:
            found.append(
                f"{lost:,} answers do not fit into a context with their end: no log-ratio."
            )
    if asked.kl:
        for why in dict.fromkeys(side.no_kl for side in sides if side.no_kl):
            which = ", ".join(side.model for side in sides if side.no_kl == why)
            found.append(f"No divergence for {which}: {why}.")
    return found


def says_nothing(model: Mapping[str, Any], result: Mapping[str, Any]) -> bool:
    """True if no answer of a model or its opponent can be read: all are ties."""
    shares = (each.get("unreadable", [0.0])[0] for each in (model, result["against"]))
    return all(share == 1.0 for share in shares)
