"""Made-up sentences for duplicate tests: many different texts without much in common."""

from __future__ import annotations

import random

SUBJECTS = [
    "surveyor",
    "pilot",
    "botanist",
    "cook",
    "teacher",
    "keeper",
    "painter",
    "doctor",
    "carpenter",
    "farmer",
    "sailor",
    "baker",
]
VERBS = [
    "measured",
    "carried",
    "opened",
    "recorded",
    "repaired",
    "borrowed",
    "described",
    "compared",
    "cleaned",
    "sorted",
    "studied",
    "painted",
]
OBJECTS = [
    "kettles",
    "letters",
    "ladders",
    "boats",
    "maps",
    "jars",
    "gates",
    "ovens",
    "calendars",
    "paths",
    "pears",
    "tables",
    "lanterns",
    "wheels",
]
TAILS = [
    "at dawn",
    "before the rain",
    "with great care",
    "near the river",
    "for the council",
    "in the old mill",
    "after supper",
]


def prose(seed: int, sentences: int = 24) -> str:
    """Text number `seed`."""
    draw = random.Random(seed)
    return " ".join(
        f"The {draw.choice(SUBJECTS)} {draw.choice(VERBS)} {draw.randint(2, 999)} {draw.choice(OBJECTS)} "
        f"{draw.choice(TAILS)} and the {draw.choice(SUBJECTS)} {draw.choice(VERBS)} the {draw.choice(OBJECTS)}."
        for _ in range(sentences)
    )


def changed(text: str, words: int, seed: int = 0) -> str:
    """The text with so many words replaced by new ones."""
    draw = random.Random(seed)
    parts = text.split()
    for at in draw.sample(range(len(parts)), words):
        parts[at] = f"changed{seed}x{at}"
    return " ".join(parts)
