"""What an audit is asked, and what it says."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.auditing import (
    Measured,
    Scores,
    Target,
    Task,
    _too_right,
    derived,
    gaussian_bound,
    gaussian_epsilon,
    limits,
    one_run_bound,
    one_run_gaussian_bound,
    one_run_p_value,
    scratch_ledger,
    threshold_bound,
)
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.theorems import COMES_OR_GOES

TASK = Task(Adjacency.ADD_REMOVE, 1.0, 100, Randomness(0))


def test_the_two_data_sets_never_share_a_draw():
    sides = [TASK.side(second).stream("noise").random() for second in (False, True)]
    assert sides[0] != sides[1]
    assert sides == [TASK.side(second).stream("noise").random() for second in (False, True)]
    fresh = Task(Adjacency.ADD_REMOVE, 1.0, 100, Randomness(None))
    assert not fresh.side(False).seeded


def test_trials_have_sources_of_their_own():
    found = {derived(Randomness(0), "trial", n).seed for n in range(100)}
    assert len(found) == 100
    assert derived(Randomness(None), "trial", 1).seed is None


def test_impossible_tasks_are_refused():
    with pytest.raises(ValueError, match="--trials"):
        Task(Adjacency.REPLACE, 1.0, 2, Randomness(0))
    with pytest.raises(ValueError, match="--epsilon"):
        Task(Adjacency.REPLACE, 0.0, 100, Randomness(0))


def test_verdicts():
    under, over = Measured(1.0, 0.9, 10, 0.0), Measured(1.0, 1.1, 10, 0.0)
    sound = Target("", lambda task: under)
    claimed_elsewhere = Target("", lambda task: over, sound=False)
    assert sound.verdict(under) == claimed_elsewhere.verdict(under) == "consistent"
    assert sound.verdict(over) == "violated"
    assert claimed_elsewhere.verdict(over) == "violated, as documented"


def test_the_usual_adjacency_is_one_that_has_a_claim():
    assert Target("", lambda task: None).usual is Adjacency.ADD_REMOVE
    assert (
        Target("", lambda task: None, adjacencies=frozenset(Adjacency) - COMES_OR_GOES).usual
        is Adjacency.REPLACE
    )
    assert Target("", lambda task: None, adjacencies=COMES_OR_GOES).usual is Adjacency.ADD_REMOVE


def test_a_scratch_ledger_is_a_real_one_and_leaves_nothing():
    with scratch_ledger(Adjacency.REPLACE) as ledger:
        ledger.charge(PoissonGaussian(0.5, 2.0), round_=1, covers="sum")
        assert ledger.path.read_bytes().count(b"\n") == 2
        assert ledger.epsilon() > 0
    assert not ledger.path.parent.exists()


# Lower bounds: they hold as often as they say, and come near to what is known.


def responses(epsilon, trials, seed):
    """Scores of randomized response with one bit."""
    generator = np.random.default_rng(seed)
    keep = 1 / (1 + math.exp(-epsilon))
    return Scores(
        (generator.random(trials) < keep).astype(float),
        (generator.random(trials) >= keep).astype(float),
    )


def test_limits_are_those_of_clopper_and_pearson():
    for successes, trials in ((0, 10), (1, 10), (7, 10), (10, 10), (3, 1000)):
        low, high = limits(successes, trials, 0.01)
        test = stats.binomtest(successes, trials)
        expected = test.proportion_ci(confidence_level=0.98, method="exact")
        assert float(low) == pytest.approx(expected.low, abs=1e-12)
        assert float(high) == pytest.approx(expected.high, abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_bound_holds_as_often_as_it_says(epsilon):
    confidence, repeats = 0.8, 400
    wrong = sum(
        threshold_bound(responses(epsilon, 300, seed), delta=0.0, confidence=confidence) > epsilon
        for seed in range(repeats)
    )
    assert stats.binom.sf(wrong - 1, repeats, 1 - confidence) > 1e-4, f"{wrong} of {repeats}"


def test_the_bound_comes_near_to_the_truth_from_either_side():
    scores = responses(1.5, 200_000, 0)
    assert 1.45 < threshold_bound(scores, delta=0.0, confidence=0.99) <= 1.5
    exchanged = Scores(-scores.second_N, -scores.first_N)
    assert 1.45 < threshold_bound(exchanged, delta=0.0, confidence=0.99) <= 1.5


def test_a_one_sided_loss_is_found_whichever_side_it_is_on():
    """An outcome likely under one and rare under the other, whose complement tells little."""
    rare, likely = np.zeros(10_000), np.zeros(10_000)
    likely[:1000] = 1.0
    rare[:10] = 1.0
    forward = threshold_bound(Scores(likely, rare), delta=0.0, confidence=0.99)
    backward = threshold_bound(Scores(-rare, -likely), delta=0.0, confidence=0.99)
    assert forward == backward > 3.0


def test_delta_is_subtracted_from_what_is_likely():
    """A mechanism that publishes everything with probability 1 %, and else nothing."""
    generator = np.random.default_rng(0)
    first_N = (generator.random(200_000) < 0.01).astype(float)
    scores = Scores(first_N, np.zeros(200_000))
    assert threshold_bound(scores, delta=0.0101, confidence=0.99) == 0.0
    assert threshold_bound(scores, delta=0.005, confidence=0.99) > 4.0


def test_nothing_to_see_gives_nothing():
    generator = np.random.default_rng(1)
    scores = Scores(generator.normal(size=5000), generator.normal(size=5000))
    assert threshold_bound(scores, delta=0.0, confidence=0.99) < 0.1
    assert gaussian_bound(scores, delta=1e-5, confidence=0.99) < 0.3
    same = Scores(np.zeros(100), np.zeros(100))
    assert threshold_bound(same, delta=0.0, confidence=0.99) == 0.0


def test_scores_may_be_infinite():
    scores = Scores(np.full(1000, np.inf), np.full(1000, -np.inf))
    assert 4.0 < threshold_bound(scores, delta=1e-5, confidence=0.99) < 7.0


def test_what_is_no_score_or_too_little_is_refused():
    with pytest.raises(ValueError, match="not a number"):
        Scores(np.array([1.0, math.nan, 0.0, 0.0]), np.zeros(4))
    with pytest.raises(ValueError, match="four trials"):
        Scores(np.zeros(3), np.zeros(100))
    for terms in ({"delta": 1.0, "confidence": 0.9}, {"delta": 0.0, "confidence": 1.0}):
        with pytest.raises(ValueError, match="must be"):
            threshold_bound(Scores(np.zeros(4), np.zeros(4)), **terms)


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_a_gaussian_fit_finds_mu(mu):
    generator = np.random.default_rng(2)
    scores = Scores(generator.normal(size=100_000) + mu, generator.normal(size=100_000))
    truth = gaussian_epsilon(mu, 1e-5)
    assert 0.85 * truth < gaussian_bound(scores, delta=1e-5, confidence=0.99) <= truth


@pytest.mark.parametrize("sigma", [0.7, 1.0, 4.0])
def test_the_epsilon_of_a_gaussian_is_the_accountants(sigma):
    event = [(PoissonGaussian(1.0, sigma), 1)]
    expected = accountant.epsilon(event, adjacency=Adjacency.ADD_REMOVE, delta=1e-5)
    assert gaussian_epsilon(1 / sigma, 1e-5) == pytest.approx(expected, rel=1e-3)
    assert gaussian_epsilon(0.0, 1e-5) == 0.0
    assert gaussian_epsilon(0.0, 0.0) == 0.0
    assert gaussian_epsilon(1.0, 0.0) == math.inf


def published_p_value(m, r, v, eps, delta):
    """The formula of Theorem 5.2, summed term by term."""
    q = math.exp(eps) / (1 + math.exp(eps))
    beta = sum(math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(v, r + 1))
    alpha, total = 0.0, 0.0
    for i in range(1, v + 1):
        total += math.comb(r, v - i) * q ** (v - i) * (1 - q) ** (r - v + i)
        alpha = max(alpha, total / i)
    return min(1.0, beta + alpha * delta * 2 * m)


def test_the_p_value_of_one_run_is_the_theorems():
    for m, r, v in ((100, 50, 40), (30, 30, 30), (60, 20, 0), (60, 20, 1)):
        for eps, delta in ((0.0, 0.0), (1.0, 1e-3), (2.5, 1e-5)):
            expected = published_p_value(m, r, v, eps, delta)
            assert one_run_p_value(v, r, m, eps, delta) == pytest.approx(expected, rel=1e-9)


def test_one_run_holds_as_often_as_it_says():
    generator, epsilon, wrong = np.random.default_rng(3), 1.0, 0
    keep = 1 / (1 + math.exp(-epsilon))
    for _ in range(400):
        correct = int(generator.binomial(100, keep))
        wrong += one_run_bound(correct, 100, 1000, delta=0.0, confidence=0.8) > epsilon
    assert stats.binom.sf(wrong - 1, 400, 0.2) > 1e-4
    assert wrong > 20, "a bound that is never wrong at 80 % is not the tightest"


def test_one_run_grows_with_what_was_right_and_shrinks_with_delta():
    terms = {"delta": 1e-5, "confidence": 0.95}
    found = [one_run_bound(correct, 100, 1000, **terms) for correct in (50, 70, 90, 100)]
    assert found[0] == 0.0
    assert found == sorted(found)
    assert 3.0 < found[-1] < 4.0
    assert one_run_bound(90, 100, 1000, delta=1e-3, confidence=0.95) < found[2]
    assert one_run_bound(0, 0, 1000, **terms) == 0.0


def test_impossible_counts_of_one_run_are_refused():
    for counts in ((11, 10, 100), (5, 101, 100), (-1, 10, 100)):
        with pytest.raises(ValueError, match="guesses about"):
            one_run_bound(*counts, delta=1e-5, confidence=0.95)


def least_that_is_left(guesses, canaries, correct, chance, mu, tangents=400):
    """The least of Σ p·guesses/M over all p with P(``correct`` or more) ≥ chance that mu-GDP
    allows: a linear program, its convex condition by tangents from below."""
    x_N = np.linspace(1e-4, 1 - 1e-3, tangents)
    value_N = stats.norm.cdf(stats.norm.ppf(x_N) - mu)
    slope_N = np.exp(mu * stats.norm.ppf(x_N) - mu**2 / 2)
    count = np.arange(guesses + 1)
    rows, limits = [-(count >= correct).astype(float)], [-chance]
    for i in range(guesses):
        right = np.where(count >= i + 1, count, 0) / canaries
        wrong = np.where(count >= i, guesses - count, 0) / canaries
        for x, value, slope in zip(x_N, value_N, slope_N, strict=True):
            rows.append(slope * right - wrong)
            limits.append(slope * x - value)
    solved = optimize.linprog(np.ones(guesses + 1), np.array(rows), limits, method="highs")
    assert solved.status == 0
    return solved.fun


@pytest.mark.parametrize(("guesses", "canaries", "correct"), [(8, 8, 7), (8, 20, 8), (10, 10, 8)])
@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0])
def test_what_a_gaussian_run_can_have_right_is_what_a_linear_program_finds(
    guesses, canaries, correct, mu
):
    """Refuted where no distribution of the number of right guesses has so much in all."""
    chances = np.geomspace(1e-4, 1.0, 60)
    refuted = [_too_right(correct, guesses, canaries, mu, chance) for chance in chances]
    assert refuted == sorted(refuted)
    edge = optimize.brentq(
        lambda log: least_that_is_left(guesses, canaries, correct, math.exp(log), mu) - 1.0,
        math.log(1e-4), 0.0, xtol=1e-3,
    )  # fmt: skip
    first = next((c for c, is_so in zip(chances, refuted, strict=True) if is_so), 1.0)
    assert first == pytest.approx(math.exp(edge), rel=0.2)


def test_one_gaussian_run_holds_as_often_as_it_says():
    """Independent canaries, each seen through a Gaussian: guesses where it is surest."""
    generator, mu, wrong, sound = np.random.default_rng(4), 1.5, 0, 0
    epsilon = gaussian_epsilon(mu, 1e-5)
    for _ in range(300):
        in_M = generator.random(400) < 0.5
        score_M = generator.standard_normal(400) + mu * in_M
        surest = np.argsort(-np.abs(score_M - mu / 2))[:100]
        correct = int(((score_M > mu / 2) == in_M)[surest].sum())
        given = (correct, 100, 400)
        fitted = one_run_gaussian_bound(*given, delta=1e-5, confidence=0.8)
        wrong += fitted > epsilon
        sound += one_run_bound(*given, delta=1e-5, confidence=0.8) > epsilon
    assert stats.binom.sf(wrong - 1, 300, 0.2) > 1e-4
    assert sound == 0


def test_one_gaussian_run_proves_more_than_any_run():
    """On ideal Gaussian scores at a claim of 8."""
    generator = np.random.default_rng(5)
    mu = optimize.brentq(lambda mu: gaussian_epsilon(mu, 1e-5) - 8.0, 0.1, 5.0)
    in_M = generator.random(1000) < 0.5
    score_M = generator.standard_normal(1000) + mu * in_M
    order = np.argsort(-np.abs(score_M - mu / 2))
    right_M = ((score_M > mu / 2) == in_M)[order]
    given = (int(right_M[:300].sum()), 300, 1000)
    terms = {"delta": 1e-5, "confidence": 0.95}
    proved, fitted = one_run_bound(*given, **terms), one_run_gaussian_bound(*given, **terms)
    assert 1.0 < proved < fitted < 8.0
    assert fitted > 1.5 * proved


def test_one_gaussian_run_grows_with_what_was_right():
    terms = {"delta": 1e-5, "confidence": 0.95}
    fitted = [one_run_gaussian_bound(c, 100, 1000, **terms) for c in (50, 70, 90, 100)]
    assert fitted[0] == 0.0
    assert fitted == sorted(fitted)
    assert math.isfinite(fitted[-1])
    assert one_run_gaussian_bound(0, 0, 1000, **terms) == 0.0
    assert math.isfinite(one_run_gaussian_bound(1000, 1000, 1000, **terms))
    with pytest.raises(ValueError, match="3 correct of 2 guesses"):
        one_run_gaussian_bound(3, 2, 10, **terms)
