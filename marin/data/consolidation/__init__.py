"""The policy: which documents stay, what is masked in them, and in which split and cell they go."""
