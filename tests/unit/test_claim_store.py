"""Claims on disk: what comes back is what was read, in blocks of whole evidences, opened one by one."""

import fcntl
import json
import random
from pathlib import Path
from typing import Any

import pytest

from proofreel.core.errors import RowError
from proofreel.core.pairs import Image, Pair, Passage, VideoSegment, evidence_key
from proofreel.data_prep.exports import ClaimRow, ClaimStream, read_claims, stream_claims
from proofreel.data_prep.importers import Rejected
from proofreel.data_prep.media import picture_directory
from proofreel.eval.scoring import claim_store
from proofreel.eval.scoring.claim_store import ClaimStore, store_claims, store_pairs
from proofreel.eval.scoring.score import pairs_sha256

ODD = [
    Pair("half \ud800", "A.", (Passage("Halves of characters \udfff come out of JSON."),), label="refuted"),
    Pair("m", "B.", (VideoSegment("a.mp4", 0.5, None),), context="C.", soft_label=0.25, meta={"a": [1, {"b": None}]}),
    Pair("", "C.", (VideoSegment("a.mp4", 0.5, None), Passage("T.")), weight=0.5, teacher_margin=-1.5),
]


def shuffled(n: int, n_evidences: int) -> list[Pair]:
    texts = [f"Ball {i % n_evidences} is red." for i in range(n)]
    random.Random(3).shuffle(texts)
    return [Pair(f"r{i}", f"Object {i} is red.", (Passage(text),)) for i, text in enumerate(texts)]


def grouped(pairs: list[Pair], rows_per_block: int) -> list[list[int]]:
    """The same with everything in memory: evidences as they are met, cut where enough rows are together."""
    same: dict[str, list[int]] = {}
    for place, pair in enumerate(pairs):
        same.setdefault(evidence_key(pair.evidence), []).append(place)
    blocks: list[list[int]] = [[]]
    for places in same.values():
        if len(blocks[-1]) >= rows_per_block:
            blocks.append([])
        blocks[-1] += places
    return blocks


@pytest.mark.parametrize("size", [1, 4, 7, 1000])
@pytest.mark.parametrize("pairs", [shuffled(60, 13), ODD, shuffled(5, 5), []], ids=["shuffled", "odd", "apart", "none"])
def test_blocks_are_those_of_all_pairs_in_memory(tmp_path, pairs, size):
    store, expected = store_pairs(tmp_path / "b", pairs, size), grouped(pairs, size)
    blocks = store.blocks()
    assert [block.n_rows for block in blocks] == list(map(len, expected))
    for block, places in zip(blocks, expected, strict=True):
        assert store.places_of_block(block.number).tolist() == places
        assert store.of_block(block.number) == [pairs[place] for place in places]
        assert block.sha256 == pairs_sha256([pairs[place] for place in places])
    assert [(place, pair) for place, pair in store.pairs()] == list(enumerate(pairs))
    assert store.pairs_sha256 == pairs_sha256(pairs)
    assert (store.n_items, store.n_pairs, store.n_rejected) == (len(pairs), len(pairs), 0)
    assert all(store.has(pair.id) for pair in pairs)
    assert not store.has("another")


def stored(folder: Path, stream: ClaimStream, **key: Any) -> ClaimStore:
    return store_claims(folder, key, lambda: stream, rows_per_block=3)


def test_a_file_with_bad_rows_and_repeated_ids_is_what_reading_it_gives(tmp_path):
    rows: list[Any] = [{"id": f"r{i % 7}", "claim": f"Claim {i}.", "text": f"T{i % 3}", "mine": 1} for i in range(12)]
    rows[4] = {"id": "r4", "claim": "", "text": "T."}  # its id stays free for a later row
    path = tmp_path / "c.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:6]) + "{cut\n" + json.dumps(rows[11]) + "\n")
    path.write_text(path.read_text() + "".join(json.dumps(row) + "\n" for row in rows[6:]))
    held, store = read_claims(path), stored(tmp_path / "b", stream_claims(path))
    assert tuple(store.rows) == held.rows
    assert tuple(store.rejected()) == held.rejected
    assert tuple(pair for _, pair in store.pairs()) == held.pairs
    assert (store.format, store.unused) == (held.format, held.unused) == ("rows", ("mine",))
    assert sum("occurs twice" in item.reason for item in held.rejected) == 5
    assert (store.n_items, store.n_rejected) == (len(held.rows), len(held.rejected)) == (14, 7)
    assert sorted(pair.id for block in store.blocks() for pair in store.of_block(block.number)) == sorted(
        pair.id for pair in held.pairs
    )


def test_two_pairs_with_one_id_are_refused_where_there_is_no_file(tmp_path):
    with pytest.raises(RowError, match="'r0'"):
        store_pairs(tmp_path / "b", [*shuffled(3, 3), *shuffled(1, 1)], 4)
    assert not (tmp_path / "b").exists()


def counting(pairs: list[Pair], counts: list[int]) -> ClaimStream:
    def rows() -> Any:
        counts.append(0)
        for pair in pairs:
            counts[-1] += 1
            yield ClaimRow("f", 1, pair)

    return ClaimStream(rows, "rows")


def test_claims_are_read_once_for_all_who_come_and_again_for_another_key(tmp_path):
    counts: list[int] = []
    stream = counting(shuffled(20, 4), counts)
    for _ in range(3):
        assert stored(tmp_path / "b", stream, of="one").n_pairs == 20
    assert counts == [20]
    open_before = stored(tmp_path / "b", stream, of="one")
    stored(tmp_path / "b", counting(shuffled(2, 2), counts), of="two")
    assert counts == [20, 2]
    assert len(list(open_before.pairs())) == 20  # who has it open is not disturbed
    (tmp_path / "b" / claim_store.FILE).write_bytes(b"cut")
    assert stored(tmp_path / "b", stream, of="two").n_pairs == 20


def test_who_is_stopped_while_reading_leaves_nothing_that_counts(tmp_path):
    def rows() -> Any:
        yield ClaimRow("f", 1, ODD[0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stored(tmp_path / "b", ClaimStream(rows, "rows"), of="one")
    assert not (tmp_path / "b" / claim_store.FILE).exists()
    assert stored(tmp_path / "b", counting(ODD, []), of="one").n_pairs == 3


def test_a_block_that_is_opened_reads_its_own_rows_and_no_others(tmp_path, monkeypatch):
    store = store_pairs(tmp_path / "b", shuffled(400, 100), 8)
    made, make = [], Pair.from_dict
    monkeypatch.setattr(Pair, "from_dict", lambda row, *more: made.append(1) or make(row, *more))
    blocks = store.blocks()
    assert (len(blocks), len(made)) == (50, 0)
    for number in (0, 17):
        made.clear()
        assert len(store.of_block(number)) == len(made) == blocks[number].n_rows == 8
    query = f"SELECT i.n {claim_store._IN_BLOCKS} WHERE e.block = 1"
    plan = [row[3] for row in store._db.execute(f"EXPLAIN QUERY PLAN {query}")]
    assert all(step.startswith("SEARCH") for step in plan), plan  # by an index: no look at other rows


def test_passes_over_the_disk_sort_nothing_in_memory(tmp_path):
    store = store_pairs(tmp_path / "b", shuffled(40, 9), 8)
    asked: list[str] = []
    store._db.set_trace_callback(asked.append)
    assert (
        len(list(store.rows)) == len(list(store.pairs())) == sum(len(store.of_block(b.number)) for b in store.blocks())
    )
    store._db.set_trace_callback(None)
    assert len(asked) == 3 + len(store.blocks())
    writing = (
        f"SELECT e.block, i.json {claim_store._IN_BLOCKS} ORDER BY e.first, i.n",
        "SELECT n, json FROM items WHERE id IS NOT NULL ORDER BY n",
        "SELECT id FROM items WHERE id IS NOT NULL GROUP BY id HAVING COUNT(*) > 1",
    )
    for query in (*asked, *writing):
        plan = [row[3] for row in store._db.execute(f"EXPLAIN QUERY PLAN {query}")]
        assert not any("TEMP B-TREE" in step for step in plan), (query, plan)


def test_who_waits_for_the_reader_says_so_and_ends_with_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(claim_store, "_TELL_EVERY_S", -1.0)
    folder, told = tmp_path / "b", []
    folder.mkdir()
    stream = counting(ODD, [])
    with (folder / "claims.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RowError, match="another process reads"):
            store_claims(folder, {}, lambda: stream, rows_per_block=3, tell=told.append, wait_limit_s=0.3)
    assert told
    assert set(told) == {"waiting for the process that reads the claims"}
    assert store_claims(folder, {}, lambda: stream, rows_per_block=3, wait_limit_s=0.3).n_pairs == 3


def test_pictures_of_the_file_itself_are_put_on_every_machine_that_opens_it(tmp_path):
    picture = Image(str(picture_directory() / "ab" / "cd.png"))
    for pairs, n_read in (([Pair("a", "A.", (picture,))], 2), ([Pair("a", "A.", (Image("a.png"),))], 1)):
        counts: list[int] = []
        for _ in range(2):
            stored(tmp_path / str(n_read), counting(pairs, counts), of="one")
        assert counts == [1] * n_read


def test_a_rejected_item_comes_back_with_all_that_it_says(tmp_path):
    bad = Rejected("dir/b.jsonl", None, None, "kind", "reason \ud800", pairs=3, blocking=False)
    store = stored(tmp_path / "b", ClaimStream(lambda: iter([ClaimRow("dir/b.jsonl", None, bad)]), "murgat"))
    assert [row.item for row in store.rows] == list(store.rejected()) == [bad]
    assert [block.n_rows for block in store.blocks()] == [0]


def test_who_removes_claims_leaves_them_to_who_is_reading_them(tmp_path):
    folder = tmp_path / "b"

    def rows() -> Any:
        claim_store.remove_claims(folder)  # another process, which is done with the file
        yield ClaimRow("f", 1, ODD[1])

    assert stored(folder, ClaimStream(rows, "rows")).n_pairs == 1
    claim_store.remove_claims(folder)
    assert not folder.exists()
    claim_store.remove_claims(folder)


def test_who_waited_for_a_folder_that_was_removed_reads_into_a_new_one(tmp_path, monkeypatch):
    folder, taken = tmp_path / "b", fcntl.flock

    def removed_before(lock: Any, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", taken)
        claim_store.shutil.rmtree(folder)
        taken(lock, how)

    monkeypatch.setattr(fcntl, "flock", removed_before)
    assert stored(folder, counting(ODD, [])).n_pairs == 3
    assert (folder / claim_store.FILE).exists()


def test_an_error_of_reading_is_not_taken_for_a_folder_that_is_gone(tmp_path):
    def rows() -> Any:
        raise FileNotFoundError("transcript.json")
        yield

    with pytest.raises(FileNotFoundError, match=r"transcript\.json"):
        stored(tmp_path / "b", ClaimStream(rows, "rows"))
