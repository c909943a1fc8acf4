"""Users' texts in tokens, and users' gradients of the losses on them."""
