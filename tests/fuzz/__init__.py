"""The command line under damaged files and odd arguments: ``python -m tests.fuzz --help``."""
