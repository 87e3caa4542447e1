"""Haffari & Sarkar 2008: homotopy between labelled and unlabelled citations, for HMMs."""
