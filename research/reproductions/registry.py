"""The reruns of ``murmuration reproduce``, by name."""

from murmuration.research.reproductions import (
    accuracy_by_users,
    aup_kwise,
    aup_tables,
    btl_compare,
    hostile_users,
    membership,
)
from murmuration.research.reproductions.alignment import (
    accuracies,
    arguments,
    frontier,
    judgements_each,
    step_times,
    wins,
)
from murmuration.research.reproductions.bandits import square_chipo_rates
from murmuration.research.reproductions.entry import Entry, of_rows
from murmuration.research.reproductions.label_dp import choices, figure_1, rates, rr_vs_m
from murmuration.research.reproductions.policies import (
    chipo_cdp,
    chipo_selfplay,
    chipo_toy,
    finance_ctl_ltc,
)
from murmuration.research.reproductions.ranking import arenas
from murmuration.research.reproductions.rivals import few_people, real_people, strengths
from murmuration.research.reproductions.uls import (
    accounting,
    conjecture,
    group_cohort,
    language_model,
    mean_estimation,
    median_rule,
    personal,
    samplings,
    variance,
)

ENTRIES = {
    "accuracy-by-users": Entry(
        "accuracy by number of users and ε, beside no privacy and the length baseline",
        accuracy_by_users.reproduced,
        accuracy_by_users.of_people,
        quick_minutes=0.2,
    ),
    "aup-tables": Entry(
        "in which unit they are, and what one accountant makes of them",
        of_rows(aup_tables.aup_tables, lambda rows: aup_tables.REMARKS, aup_tables.plot),
        paper="A: Tables 1, 2",
        quick_minutes=0.1,
    ),
    "aup-kwise": Entry(
        "how the error of a reward from rankings goes with K",
        of_rows(aup_kwise.aup_kwise, aup_kwise.remarks, aup_kwise.plot),
        paper="A: Theorem 5",
        quick_minutes=0.6,
        minutes=5,
    ),
    "btl-compare": Entry(
        "error of the strategies on synthetic judgements at equal ε, beside a tuned grid",
        btl_compare.reproduced,
        paper="A: Algorithm 4",
        quick_minutes=1.1,
    ),
    "group-cohort": Entry(
        "which group size and cohort for a compute budget: Estimate-and-Double and its rivals",
        of_rows(group_cohort.group_cohort, group_cohort.remarks, group_cohort.plot),
        paper="U: Algorithm 3; Figures 11, 12, 13",
        quick_minutes=0.4,
        minutes=15,
    ),
    "hostile-users": Entry(
        "what a share of hostile users does to a model, beside what clipping and medians leave",
        hostile_users.reproduced,
        quick_minutes=0.2,
    ),
    "uls-conjecture": Entry(
        "does sampling examples need at most K times the noise of sampling users?",
        of_rows(conjecture.uls_conjecture, conjecture.remarks),
        paper="U: Conjecture 1; Lemma 1",
        quick_minutes=0.1,
    ),
    "uls-accounting": Entry(
        "what sampling examples costs a user, tightly and as a black box",
        of_rows(accounting.accounting, accounting.remarks, accounting.plot),
        paper="U: Theorem 1; Figure 1",
    ),
    "uls-variance": Entry(
        "variance of noise of ELS and ULS at equal compute",
        of_rows(variance.variance, variance.remarks, variance.plot),
        paper="U: Figures 2, 6",
    ),
    "uls-mean": Entry(
        "a mean estimated by sampled examples or users, best of one sweep for each",
        of_rows(mean_estimation.mean_estimation, mean_estimation.remarks, mean_estimation.plot),
        paper="U: Figure 7",
        quick_minutes=0.2,
        minutes=6,
    ),
    "uls-lm": Entry(
        "a language model by ELS and ULS at equal compute",
        of_rows(language_model.language_model, language_model.remarks, language_model.plot),
        paper="U: Figures 3, 4, 5, 14, 15",
        quick_minutes=0.4,
    ),
    "uls-median": Entry(
        "the loss of ELS against group size, and whether the median suits",
        of_rows(median_rule.median_rule, median_rule.remarks, median_rule.plot),
        paper="U: Figures 9, 10",
        quick_minutes=0.6,
        minutes=46,
    ),
    "uls-personal": Entry(
        "models of ELS and ULS, tuned on half of each user's judgements",
        of_rows(personal.personal, personal.remarks, personal.plot),
        paper="U: Figure 16",
        quick_minutes=0.3,
        minutes=4,
    ),
    "uls-sampling": Entry(
        "coins, correlated noise, everybody in each round: accuracy at the same promise",
        samplings.samplings,
        samplings.of_people,
        quick_minutes=0.9,
    ),
    "membership": Entry(
        "which users were trained on: two attacks on reward models, beside what ε allows",
        membership.reproduced,
        quick_minutes=0.1,
    ),
    "label-dp-fig1": Entry(
        "error against n behind randomized response, in the middle, and without privacy",
        of_rows(figure_1.label_dp_fig1, figure_1.remarks, figure_1.plot),
        paper="L: Algorithm 1; Theorem 4.1; Figure 1",
        quick_minutes=0.2,
        minutes=8,
    ),
    "label-dp-bounds": Entry(
        "exponents of n, d and ε in the error, beside those of L's Theorems 3.1 to 5.3",
        of_rows(rates.label_dp_bounds, rates.remarks, rates.plot),
        paper="L: Theorems 3.1, 3.2, 4.2, 4.5, 5.1, 5.3, D.3; Corollaries 4.3, 5.4",
        quick_minutes=0.2,
    ),
    "label-dp-choices": Entry(
        "choices among K responses behind randomized response: error against n, K and ε",
        of_rows(choices.label_dp_choices, choices.remarks, choices.plot),
        paper="L: Theorem C.2",
        quick_minutes=0.2,
    ),
    "rr-vs-m": Entry(
        "many judgements of each user: randomized response against ULS and AUP, at equal ε",
        of_rows(rr_vs_m.rr_vs_m, rr_vs_m.remarks, rr_vs_m.plot),
        paper="A: Theorem 1",
        quick_minutes=0.2,
    ),
    "square-chipo-rates": Entry(
        "exponents of n, c(ε) and α in Square-χPO's error, beside those of S's Theorem 3.5",
        of_rows(
            square_chipo_rates.square_chipo_rates,
            square_chipo_rates.remarks,
            square_chipo_rates.plot,
        ),
        paper="S: Algorithm 1; Theorems 3.5, C.1",
        quick_minutes=0.2,
    ),
    "chipo-toy": Entry(
        "DPO and χPO where some responses are hardly ever judged, on a problem with a known best",
        of_rows(chipo_toy.chipo_toy, chipo_toy.remarks, chipo_toy.plot),
        quick_minutes=0.1,
    ),
    "chipo-cdp": Entry(
        "the exponential mechanism over policies: what it misses against n and ε, at two levels",
        of_rows(chipo_cdp.chipo_cdp, chipo_cdp.remarks, chipo_cdp.plot),
        paper="S: Algorithm 2; Theorem 3.7",
        quick_minutes=0.1,
    ),
    "chipo-selfplay": Entry(
        "self-play on preferences that go in circles, from protected judgements: the duality gap",
        of_rows(chipo_selfplay.chipo_selfplay, chipo_selfplay.remarks, chipo_selfplay.plot),
        paper="S: Algorithm 3; Theorems 4.4, D.3",
        quick_minutes=0.3,
    ),
    "finance-ctl-ltc": Entry(
        "a policy that writes, from labels corrupted before or after they are randomized",
        of_rows(finance_ctl_ltc.finance_ctl_ltc, finance_ctl_ltc.remarks, finance_ctl_ltc.plot),
        paper="S: Table 1",
        quick_minutes=1.0,
        minutes=25,
    ),
    "ranking": Entry(
        "boards from votes on items of known strengths: users, votes or answers protected, or none",
        of_rows(arenas.ranking, arenas.remarks, arenas.plot),
    ),
    "aup-accuracy": Entry(
        "AUP-RLHF's two settings: how often private rewards are right about others, at equal ε",
        of_rows(accuracies.accuracies, accuracies.remarks),
        paper="A: Algorithm 1",
        quick_minutes=0.4,
    ),
    "aup-time": Entry(
        "how long a step of each strategy takes, as ratios",
        step_times.step_times,
        paper="A: Table 6",
    ),
    "aup-m": Entry(
        "more judgements of each user, and reward over KL divergence",
        judgements_each.judgements_each,
        paper="A: Table 7",
        quick_minutes=0.8,
    ),
    "aup-imdb": Entry(
        "reward against KL divergence, at equal ε",
        frontier.frontier,
        paper="A: Table 5; Figures 1, 3, 4",
        quick_minutes=0.9,
    ),
    "aup-tldr": Entry(
        "how often answers win by private rewards, at equal ε",
        wins.wins,
        paper="A: Figures 2, 5, 6",
        quick_minutes=0.9,
    ),
    "arguments": Entry(
        "rewards of real people's judgements, and what SmolLM2's arguments gain by them",
        arguments.miniature,
        arguments.of_people,
        "the folder that examples/ukp_judgements.py makes",
        quick_minutes=1.7,
    ),
    "rivals": Entry(
        "strategies ranked on real people's judgements: one tuning budget each, and intervals",
        real_people.miniature,
        real_people.of_people,
        "a file of people's judgements of pairs",
        quick_minutes=0.2,
    ),
    "few-people": Entry(
        "what a public start is worth to few people, and a few public directions",
        few_people.miniature,
        few_people.of_people,
        "a folder with train.jsonl and test.jsonl of some people and public.jsonl of others",
        quick_minutes=0.2,
    ),
    "strengths": Entry(
        "a strength for each argument, beside words and an encoder, on real people's judgements",
        strengths.miniature,
        strengths.of_people,
        "a folder with train.jsonl and test.jsonl as examples/ukp_judgements.py writes them",
        quick_minutes=0.2,
    ),
}
