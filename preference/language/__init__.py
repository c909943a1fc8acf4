"""Language models that are trained: loading, tokens, gradients of each user."""
