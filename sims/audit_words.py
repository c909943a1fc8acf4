"""What the page about audits says around its tables."""

INTRODUCTION = """\
# Audits

Anybody can print an ε. An audit tries to refute one: it runs the mechanism many times on each of
two neighbouring data sets, the most revealing pair that is known, and lets an attacker guess
which. What the attacker achieves is a *lower* bound on ε, with a stated confidence. A lower bound
above the claim refutes it. A lower bound below it proves nothing, but one that comes near to the
claim says that neither the mechanism nor the claim can be far off.

    murmuration audit gaussian                      # one target
    murmuration audit poisson-gaussian --epsilon 4 --adjacency replace --json
    murmuration audit pipeline                      # whole runs, with canary users
    murmuration audit --all                         # all of it, and this page

An audit exits with status 1 if it refutes something that is claimed to hold. The trials call the
code that runs use; the claim is what its own ledger was charged."""

READING = """\
## Reading it

- **Bounds.** An event, a threshold on the attacker's statistic, is chosen on half of the trials;
  ε ≥ log((P(event) − δ) / P′(event)) is computed on the other half from Clopper–Pearson limits.
  At δ = 1e-5 the event that attains ε is so rare that no number of trials shows it, so bounds
  stay 10 to 40 % below the truth. `--json` also has a Gaussian fit where the mechanism is a
  Gaussian: it is within a few percent, and no bound for anything else.
- **Adjacencies.** `zero-out` gives a mechanism the same two inputs as `add-remove`, and
  `replace-labels` the same as `replace` (a worst-case label flips a gradient); one of each is
  audited.
- **Pipeline.** Whole runs of `uls`, from a file of judgements to the released model. Every user
  is a canary with two features of their own. *Pooled* bounds take each canary of each run as a
  trial; *one-run* bounds (Steinke, Nasr and Jagielski 2023) assume nothing about how canaries
  hang together, and are weaker.
- **AUP as published.** Under `replace`, the relation of the paper, each of the three promises
  that its ledger rests on is refuted by experiment: the test costs more than ε/2 (its score moves
  by 2(ñ − 1)/ñ, and its noise is for 1), the mean step more than its Gaussian, and the whole
  round more than ε. Where a user comes or goes all scores move one way, and the test's ε/2 was
  not refuted; the mean step and the round were. [aup.md](aup.md) has the proofs.
- **Faults.** The audit's number says what a fault would cost. What stands in its way by
  construction is not proof against somebody who changes that too: so each has a test as well."""
