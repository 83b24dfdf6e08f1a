"""Languages that lid.176 tells apart (https://fasttext.cc/docs/en/language-identification.html), by code and name."""

from __future__ import annotations

import difflib
import re

_TABLE = """
af Afrikaans, als Alemannic, am Amharic, an Aragonese, ar Arabic, arz Egyptian Arabic, as Assamese, ast Asturian,
av Avar, az Azerbaijani, azb South Azerbaijani, ba Bashkir, bar Bavarian, bcl Central Bikol, be Belarusian,
bg Bulgarian, bh Bihari, bn Bengali, bo Tibetan, bpy Bishnupriya, br Breton, bs Bosnian, bxr Buryat, ca Catalan,
cbk Chavacano, ce Chechen, ceb Cebuano, ckb Central Kurdish, co Corsican, cs Czech, cv Chuvash, cy Welsh, da Danish,
de German, diq Zazaki, dsb Lower Sorbian, dty Doteli, dv Maldivian, el Greek, eml Emilian-Romagnol, en English,
eo Esperanto, es Spanish, et Estonian, eu Basque, fa Persian, fi Finnish, fr French, frr North Frisian,
fy West Frisian, ga Irish, gd Scottish Gaelic, gl Galician, gn Guarani, gom Goan Konkani, gu Gujarati, gv Manx,
he Hebrew, hi Hindi, hif Fiji Hindi, hr Croatian, hsb Upper Sorbian, ht Haitian, hu Hungarian, hy Armenian,
ia Interlingua, id Indonesian, ie Interlingue, ilo Iloko, io Ido, is Icelandic, it Italian, ja Japanese, jbo Lojban,
jv Javanese, ka Georgian, kk Kazakh, km Khmer, kn Kannada, ko Korean, krc Karachay-Balkar, ku Kurdish, kv Komi,
kw Cornish, ky Kyrgyz, la Latin, lb Luxembourgish, lez Lezgian, li Limburgish, lmo Lombard, lo Lao,
lrc Northern Luri, lt Lithuanian, lv Latvian, mai Maithili, mg Malagasy, mhr Eastern Mari, min Minangkabau,
mk Macedonian, ml Malayalam, mn Mongolian, mr Marathi, mrj Western Mari, ms Malay, mt Maltese, mwl Mirandese,
my Burmese, myv Erzya, mzn Mazanderani, nah Nahuatl, nap Neapolitan, nds Low German, ne Nepali, new Newar, nl Dutch,
nn Norwegian Nynorsk, no Norwegian, oc Occitan, or Odia, os Ossetian, pa Punjabi, pam Pampanga, pfl Palatine German,
pl Polish, pms Piedmontese, pnb Western Punjabi, ps Pashto, pt Portuguese, qu Quechua, rm Romansh, ro Romanian,
ru Russian, rue Rusyn, sa Sanskrit, sah Yakut, sc Sardinian, scn Sicilian, sco Scots, sd Sindhi, sh Serbo-Croatian,
si Sinhala, sk Slovak, sl Slovenian, so Somali, sq Albanian, sr Serbian, su Sundanese, sv Swedish, sw Swahili,
ta Tamil, te Telugu, tg Tajik, th Thai, tk Turkmen, tl Tagalog, tr Turkish, tt Tatar, tyv Tuvan, ug Uyghur,
uk Ukrainian, ur Urdu, uz Uzbek, vec Venetian, vep Veps, vi Vietnamese, vls West Flemish, vo Volapük, wa Walloon,
war Waray, wuu Wu Chinese, xal Kalmyk, xmf Mingrelian, yi Yiddish, yo Yoruba, yue Cantonese, zh Chinese
"""

LANGUAGES: dict[str, str] = dict(re.findall(r"(\w+) ([^,]+)", " ".join(_TABLE.split())))
"""English name by code, of all codes that the model can give."""

_SHORTEST_START = 3
_LEAST_LIKENESS = 0.8


def likely_code(word: str) -> str | None:
    """The code that somebody meant who wrote a name, the start of one, or a code with a region.

    >>> likely_code("English"), likely_code("pt-BR"), likely_code("elvish")
    ('en', 'pt', None)
    """
    plain = word.strip().lower()
    bare = re.split(r"[-_]", plain)[0]
    if bare in LANGUAGES:
        return bare
    named = {name.lower(): code for code, name in LANGUAGES.items()}
    if plain in named:
        return named[plain]
    started = [code for name, code in named.items() if len(plain) >= _SHORTEST_START and name.startswith(plain)]
    if len(started) == 1:
        return started[0]
    close = difflib.get_close_matches(plain, named, n=1, cutoff=_LEAST_LIKENESS)
    return named[close[0]] if close else None
