"""Pieces of English text that are cut in a way of their own: contractions, abbreviations and faces."""

from __future__ import annotations

import functools

# Contractions, with a straight apostrophe, a typographic one, and none.
_PRONOUNS = ("i", "you", "he", "she", "it", "we", "they")
_POINTERS = ("that", "there", "this", "these", "those")
_QUESTIONS = ("who", "what", "when", "where", "why", "how")
_NEGATED = (
    *("ca", "could", "do", "does", "did", "had", "may", "might", "must", "need", "ought", "sha", "should", "wo"),
    "would",
)
_NEGATED_ONLY = ("ai", "are", "is", "was", "were", "have", "has", "dare")
_HAVE = ("could", "might", "must", "should", "would", "not")
# What would be another word without its apostrophe.
_WORDS_THEMSELVES = frozenset(
    {"ill", "Ill", "shell", "Shell", "well", "Well", "hell", "Hell", "shed", "Shed", "its", "Its", "were", "Were"}
    | {"whore", "Whore"}
)
_WHOLE = r"""
a.m. Adm. Ak. Ala. Apr. Ariz. Ark. Aug. Bros. Calif. Co. Colo. Conn. Corp. D.C. Dec. Del. Dr. E.G. E.g. Feb.
Fla. Ga. Gen. Gov. I.E. I.e. Ia. Id. Ill. Inc. Ind. Jan. Jr. Jul. Jun. Kan. Kans. Ky. La. Ltd. Mar. Mass. Md.
Messrs. Mich. Minn. Miss. Mo. Mont. Mr. Mrs. Ms. Mt. N.C. N.D. N.H. N.J. N.M. N.Y. Neb. Nebr. Nev. Nov. Oct.
Okla. Ore. Pa. Ph.D. Prof. Rep. Rev. S.C. Sen. Sep. Sept. St. Tenn. Va. Wash. Wis. co. e.g. i.e. p.m. v.s. vs.
and/or w/o 'S 's ’S ’s ‘S ‘s '' ’’ ' ’ — 'em ’em em 'll ’ll ll 'd ’d 're ’re 'nuff ’nuff nuff ma'am Ma'am ma’am
Ma’am o'clock O'clock o’clock O’clock ol' Ol' ol’ Ol’ ol \n \t \") <space> C++
:) :-) :)) :-)) :))) :-))) :( :-( :(( :-(( :((( :-((( :() ;) ;-) ;D :D :-D :P :-P :p :-p :/ :-/ :| :-| :o :O :-o
:-O :* :-* :3 :-3 :0 :-0 :1 :] :-] :} :-} :> :-> :x :X :-x :-X :'( :') :'-( :'-) :’( :’) :’-( :’-) =) =( =D =/
=| =3 =[ =] ]= [= [: [-: (: (; (= ): )-: (-: (-; (-8 8) 8-) 8D 8-D ;-D :o) (o: >:( >:o <3 <33 <333 </3 ^_^ ^__^
^___^ (^_^) (*_*) (-_-) (._.) (>_<) -_- -__- o_o O_O o_O O_o 0_0 0_o o_0 @_@ ;_; o.o O.O o.O O.o 0.0 0.o o.0 v.v
V.V v_v V_V ._. >.< >.> <.< xD XD xDD XDD
"""
"""Abbreviations, clipped words and faces that stay whole."""


@functools.cache
def special_pieces() -> dict[str, tuple[str, ...]]:
    """Contractions, abbreviations and faces: what a piece that reads like this is cut into."""
    found: dict[str, tuple[str, ...]] = {word: (word,) for word in _WHOLE.split()}
    found |= {f"{letter}.": (f"{letter}.",) for letter in "abcdefghijklmnopqrstuvwxyzäöü"}
    for hour in range(1, 13):
        for noon in ("am", "pm", "a.m.", "p.m."):
            found[f"{hour}{noon}"] = (str(hour), noon)
    parts: list[tuple[str, ...]] = []
    for word in _PRONOUNS:
        parts += [(word, "'ll"), (word, "'d"), (word, "'ll", "'ve"), (word, "'d", "'ve")]
        parts += [(word, "'s")] if word in ("he", "she", "it") else []
        parts += [(word, "'ve")] if word in ("i", "you", "we", "they") else []
        parts += [(word, "'re")] if word in ("you", "we", "they") else []
    parts += [("i", "'m"), ("i", "'m", "a")]
    for word in _POINTERS:
        parts += [(word, "'ll"), (word, "'d"), (word, "'ll", "'ve"), (word, "'d", "'ve")]
        parts += [(word, "'s")] if word in ("that", "there", "this") else [(word, "'re"), (word, "'ve")]
    parts += [("there", "'re"), ("there", "'ve")]
    for word in _QUESTIONS:
        parts += [(word, "'ll"), (word, "'d"), (word, "'ll", "'ve"), (word, "'d", "'ve"), (word, "'s"), (word, "'ve")]
        parts += [(word, "'re")]
    for word in _NEGATED:
        parts += [(word, "n't"), (word, "n't", "'ve")]
    parts += [(word, "n't") for word in _NEGATED_ONLY]
    parts += [(word, "'ve") for word in _HAVE]
    for part in parts:
        _add_forms(found, part)
    for apostrophe in ("'", "’"):
        for ending in ("cause", "cos", "coz", "cuz", "bout"):
            for form in (ending, ending.capitalize()):
                found[apostrophe + form] = (apostrophe + form,)
    for word in ("doin", "goin", "havin", "lovin", "nothin", "nuthin", "somethin"):
        for whole in (word, word.capitalize()):
            found |= {form: (form,) for form in (whole, f"{whole}'", f"{whole}’")}
    for whole, cut in (
        ("cannot", 3),
        ("gonna", 3),
        ("gotta", 3),
        ("let's", 3),
        ("let’s", 3),
        ("c'mon", 3),
        ("c’mon", 3),
    ):
        for form in (whole, whole.capitalize()):
            found[form] = (form[:cut], form[cut:])
    return found


def _add_forms(found: dict[str, tuple[str, ...]], parts: tuple[str, ...]) -> None:
    head, *tail = parts
    for first in (head, head.capitalize()):
        for apostrophe in ("'", "’", ""):
            words = (first, *(part.replace("'", apostrophe) for part in tail))
            whole = "".join(words)
            if whole not in _WORDS_THEMSELVES:
                found.setdefault(whole, words)
