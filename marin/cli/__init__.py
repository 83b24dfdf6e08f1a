"""The command line: `marin`, and the main function of experiments."""
