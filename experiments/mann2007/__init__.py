"""Mann & McCallum 2007, "Efficient computation of entropy gradient for semi-supervised CRFs"."""
