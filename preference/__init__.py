"""The domain: judgements, how they are loaded, features of texts and the linear reward model.

Nothing here knows about privacy, Flower, nodes or servers; it is what `client`, `strategies` and
`sims` share.
"""
