"""Jiao et al. 2006, "Semi-supervised conditional random fields for improved sequence segmentation
and labeling"."""
