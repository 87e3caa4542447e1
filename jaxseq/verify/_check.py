"""The library against autodiff, differences and enumeration: `jaxseq.verify.check`."""
