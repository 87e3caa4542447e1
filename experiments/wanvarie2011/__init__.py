"""Wanvarie, Takamura & Okumura 2011: active learning of subsequences."""
