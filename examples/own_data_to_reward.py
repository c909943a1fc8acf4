"""From a file of judgements to a reward model that scores answers.

    python examples/own_data_to_reward.py                               # synthetic users
    python examples/own_data_to_reward.py mine.jsonl public-test.jsonl  # your own

Rows are `user_id, prompt, chosen, rejected`. The second file holds judgements that are public: the
accuracy on them can be reported without privacy cost. Everything that a user ever judged counts as
one record.
"""

import argparse

from murmuration import RewardModel, train


def main() -> None:
    """Train, say what it cost and what it is worth, and score two answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default="murmuration.population:train")
    parser.add_argument("test", nargs="?", default="murmuration.population:test")
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--cohort", type=int, default=500, help="users in a round, on average")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--out", default="runs/own-data")
    given = parser.parse_args()

    run = train(
        data=given.data,
        test=given.test,
        strategy="uls",
        epsilon=given.epsilon,
        delta=1e-5,
        cohort=given.cohort,
        rounds=given.rounds,
        out=given.out,
    )
    print(f"spent: epsilon {run.result['epsilon']:.2f} at delta {run.result['delta']:g}")
    print(f"right in {run.result['heldout_accuracy']:.1%} of the public judgements")

    model = RewardModel.load(run.path / "model")
    for answer in ("Put it into your emergency fund first.", "Book the trip, you only live once!"):
        print(f"{model.score('A bonus came. What now?', answer):+.3f}  {answer}")
    print(f"report: {run.path / 'report.html'}")


if __name__ == "__main__":
    main()
