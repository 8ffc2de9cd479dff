"""Words and their stems: enough English morphology to see that "chopping", "chopped" and "chop" are one word.

Rules of our own, without a dictionary. A stem need not be a word ("slice", "slicing" -> "slic"); all that counts is
that the forms of one word meet and that different words rarely do. Used to compare the values of facts (DualFact,
appendix E: no altered value may reuse a word, stem or substring of a true one).
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache


def word_set(text: str) -> frozenset[str]:
    """The words of a text, for tables of words."""
    return frozenset(text.split())


RUN = 4  # letters in a row that two values may not share
_WORD = re.compile(r"\d+(?:[.,/]\d+)*|[^\W\d_]+")
_LITTLE = word_set("a an the of and or in on at to into onto from with for by some any its his her their your my s")
_NUMBERS = word_set(
    "zero one two three four five six seven eight nine ten eleven twelve dozen hundred half halves quarter "
    "third few several many more less couple double twice"
)
_UNITS = word_set(
    "cup tbsp tsp tablespoon teaspoon g gram kg mg ml l cl litre liter oz ounce lb pound inch cm mm m meter "
    "metre foot pinch dash handful piece minut min hour second degre percent"
)
_IRREGULAR = {
    form: word
    for word, forms in {
        "add": "adding added",
        "beat": "beaten",
        "bind": "bound",
        "break": "broke broken",
        "child": "children",
        "draw": "drew drawn",
        "foot": "feet",
        "freeze": "froze frozen",
        "grind": "ground",
        "half": "halves halve halving halved",
        "hold": "held",
        "knife": "knives",
        "leaf": "leaves",
        "loaf": "loaves",
        "man": "men",
        "mouse": "mice",
        "puree": "pureed pureeing",
        "saute": "sauteed sauteing",
        "saw": "sawn",
        "sew": "sewn",
        "shake": "shook shaken",
        "shelf": "shelves",
        "take": "took taken",
        "tear": "tore torn",
        "throw": "threw thrown",
        "tie": "tying",
        "tooth": "teeth",
        "weave": "wove woven",
        "woman": "women",
    }.items()
    for form in forms.split()
}


@dataclass(frozen=True)
class Words:
    """A value taken apart.

    Attributes:
        words: its words without articles, prepositions and conjunctions.
        stems: theirs, in order.
        content: the stems that are neither numbers nor, beside a number, units.
        runs: every run of `RUN` letters inside a stem.
        sequence: the stems of all words in a row, little ones too ("turn on" is not "turn").
    """

    words: tuple[str, ...]
    stems: tuple[str, ...]
    content: tuple[str, ...]
    runs: frozenset[str]
    sequence: tuple[str, ...]


@lru_cache(maxsize=1 << 18)
def words_of(text: str) -> Words:
    """The words of a value, folded (case, accents, compatibility forms)."""
    spoken = _WORD.findall(_fold(text))
    words = tuple(word for word in spoken if word not in _LITTLE)
    stems = tuple(stem(word) for word in words)
    counted = any(_is_number(word) for word in words)
    content = tuple(
        s for word, s in zip(words, stems, strict=True) if not (_is_number(word) or (counted and _is_unit(word, s)))
    )
    runs = frozenset(s[i : i + RUN] for s in stems for i in range(len(s) - RUN + 1))
    return Words(words, stems, content, runs, tuple(stem(word) for word in spoken))


@lru_cache(maxsize=1 << 18)
def stem(word: str) -> str:
    """The stem of one lower-case word without accents: endings of number and tense cut off, and a final e."""
    word = _IRREGULAR.get(word, word)
    word = _without_tense(_without_plural(word))
    if len(word) > 2 and word.endswith("e"):
        return word[:-1]  # slice, slicing
    return word[:-1] + "i" if len(word) > 2 and word[-1] == "y" and word[-2] not in "aeiou" else word  # cookie, cookies


def _without_plural(word: str) -> str:
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > 4 else word[:-1]
    if word.endswith(("sses", "xes", "zes", "ches", "shes", "oes")):
        return word[:-2]
    return word[:-1]


def _without_tense(word: str) -> str:
    if word.endswith("ied") and len(word) > 4:
        return word[:-3] + "y"
    for ending in ("ing", "ed"):
        start = word.removesuffix(ending)
        if start == word or len(start) < 2 or word.endswith("eed") or not re.search("[aeiouy]", start):
            continue
        doubled = len(start) > 2 and start[-1] == start[-2] and start[-1] not in "aeioulsfz"
        return start[:-1] if doubled else start
    return word


def _fold(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def _is_number(word: str) -> bool:
    return word[0].isdigit() or word in _NUMBERS


def _is_unit(word: str, stemmed: str) -> bool:
    return word in _UNITS or stemmed in _UNITS
