"""From public features and noisy labels to a reward: solvers, estimators, bounds."""
