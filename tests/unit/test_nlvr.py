"""NLVR as rows: groups by sentence, splits that share none, pictures out of the archives."""

import io
import json
import tarfile
from collections import Counter, defaultdict

import pytest

from examples.nlvr.pairs import main, read_nlvr, sentence_key
from proofreel.core import Image, RowError
from proofreel.data_prep.dataset import read_pairs

DEV = [
    ("There is a tower.", "true"),
    ("there is the tower", "false"),
    ("A box has 2 circles.", "true"),
    ("No box.", "false"),
]
TEST = [("There is a box.", "true"), ("No box", "false")]


def example(part, number, sentence, label):
    votes = {f"r{i}": label for i in range(5)}
    return {"sentence": sentence, "label": label, "identifier": f"{number}-0", "directory": "3", "evals": votes}


@pytest.fixture
def nlvr(tmp_path):
    folder = tmp_path / "nlvr"
    folder.mkdir()
    for part, rows in (("dev", DEV), ("test", TEST)):
        lines = [json.dumps(example(part, n, *row)) for n, row in enumerate(rows)]
        (folder / f"{part}.json").write_text("\n".join(lines), encoding="utf-8")
        with tarfile.open(folder / f"{part}_images.tar", "w") as tar:
            for n in range(len(rows)):
                for order in range(6):
                    content = f"{part} {n} {order}".encode()
                    entry = tarfile.TarInfo(f"{part}/images/3/{part}-{n}-0-{order}.png")
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
    return folder


def test_examples_become_pairs_with_their_pictures(nlvr, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["--nlvr", str(nlvr), "--out", str(out), "--orders", "2"]) == 0
    assert "1 examples of dev left out" in capsys.readouterr().out
    pairs = list(read_pairs(out / "nlvr.jsonl"))
    assert len(pairs) == 3 * 2 + 2
    assert {p.claim for p in pairs if p.split == "test"} == {sentence for sentence, _ in TEST}
    first = pairs[0]
    assert (first.id, first.claim, first.label) == ("nlvr/dev/0-0/0", "There is a tower.", "supported")
    assert first.meta == {"part": "dev", "example": "0-0", "votes": {"true": 5}}
    (picture,) = first.evidence
    assert isinstance(picture, Image)
    assert (out / picture.path).read_bytes() == b"dev 0 0"
    assert not (out / "dev/images/3/dev-0-0-2.png").exists()  # the third order was not wanted
    assert {p.group for p in pairs[:4]} == {"there is tower"}


def test_a_sentence_is_in_one_split_however_it_is_written():
    assert sentence_key("There is a Tower, with 2 blocks!") == sentence_key("there is  tower with 2 blocks")
    assert sentence_key("There is a tower with 2 blocks") != sentence_key("There is a tower with 3 blocks")


def test_the_published_examples_share_no_sentence_between_splits(shared_data):
    pairs, left_out = read_nlvr(shared_data / "nlvr")
    splits = defaultdict(set)
    for pair in pairs:
        splits[pair.group].add(pair.split)
    assert all(len(of) == 1 for of in splits.values())
    assert left_out == 135
    assert Counter(p.split == "test" for p in pairs) == {False: 6 * (989 - 135), True: 990}
    assert sum(p.label == "supported" for p in pairs if p.split == "test") == 556
    assert all(sum(p.meta["votes"].values()) == 5 for p in pairs)


def test_what_is_no_example_is_named_by_file_and_line(nlvr, tmp_path):
    with (nlvr / "dev.json").open("a", encoding="utf-8") as file:
        file.write('\n{"sentence": "A box.", "label": "maybe"}')
    with pytest.raises(RowError, match=r"dev\.json:5: no example of NLVR, got KeyError"):
        read_nlvr(nlvr)
    (nlvr / "dev.json").unlink()
    with pytest.raises(RowError, match="no such file"):
        read_nlvr(nlvr)


def test_a_picture_that_is_in_no_archive_stops_it(nlvr, tmp_path, capsys):
    with tarfile.open(nlvr / "test_images.tar", "w"):
        pass
    with pytest.raises(SystemExit) as stopped:
        main(["--nlvr", str(nlvr), "--out", str(tmp_path / "out")])
    assert stopped.value.code == 1
    assert "got no test/images/3/test-0-0-0.png and 1 more" in capsys.readouterr().err
