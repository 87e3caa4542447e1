"""Learning: objectives on corpora, and searches for the parameters that are best by them."""
