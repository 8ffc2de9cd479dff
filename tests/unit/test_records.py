"""Records of annotation files: every object with its line, every damage named, nothing lost silently."""

import pytest

from proofreel.data_prep.importers.base import Record, Rejected, read_json_members


def members(tmp_path, text, *under):
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    return [(i.line, i.value) if isinstance(i, Record) else i for i in read_json_members(path, *under)]


def test_members_come_with_the_line_of_their_key(tmp_path):
    assert members(tmp_path, '\ufeff{"a": 1,\n "b": {"c":\n [2]},\n\n"d": null}') == [
        (1, ("a", 1)),
        (2, ("b", {"c": [2]})),
        (5, ("d", None)),
    ]
    assert members(tmp_path, "{}") == []


def test_members_of_an_inner_object(tmp_path):
    text = '{"version": {"database": 1},\n "database": {"x": {"y": 3},\n "z": 4},\n "database2": 5}'
    assert members(tmp_path, text, "database") == [(2, ("x", {"y": 3})), (3, ("z", 4))]
    assert members(tmp_path, text, "database", "x") == [(2, ("y", 3))]


@pytest.mark.parametrize(
    ("text", "under", "line", "part"),
    [
        ("[1]", (), 1, "not an object"),
        ("", (), 1, "not an object"),
        ('{"a": 1,\n "b": [', (), 2, "not JSON"),
        ('{"a": 1\n', (), 2, "cut short"),
        ('{"a": 1,\n "a": 2}', (), 2, "twice"),
        ('{"a": {"x": 1, "x": 2}}', (), 1, "twice"),
        ('{"a" 1}', (), 1, "no key and colon"),
        ('{"a": 1, 2: 3}', (), 1, "no key and colon"),
        ('{"a": 1}', ("b",), 1, "no such key"),
        ('{"b": 1}', ("b",), 1, "not an object"),
        ('{"a": 1,', (), 1, "not JSON"),
        ('{"a": ' + "9" * 5000 + "}", (), 1, "not JSON"),
        ('{"a": ' + "[" * 100_000 + "}", (), 1, "not JSON"),
    ],
)
def test_damage_is_a_rejection_with_its_line(tmp_path, text, under, line, part):
    bad = [item for item in members(tmp_path, text, *under) if isinstance(item, Rejected)]
    assert len(bad) == 1
    assert bad[0].line == line
    assert part in bad[0].reason


def test_another_encoding_is_named_with_its_line(tmp_path):
    (tmp_path / "a.json").write_bytes(b'{"a": 1,\n "b": "\xe9"}')
    (bad,) = read_json_members(tmp_path / "a.json")
    assert isinstance(bad, Rejected)
    assert bad.line == 2
    assert "UTF-8" in bad.reason
