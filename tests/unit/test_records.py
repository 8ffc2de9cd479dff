"""Records of annotation files: every object with its line, every damage named, nothing lost silently."""

import tracemalloc

import pytest

from proofreel.data_prep.importers import base
from proofreel.data_prep.importers.base import Record, Rejected, read_json_members, read_json_records


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
        ('{"a": 1}\n {"b": 2}', (), 2, "text after"),
        ('{"a": ' + "9" * 5000 + "}", (), 1, "not JSON"),
        ('{"a": ' + "[" * 100_000 + "}", (), 1, "not JSON"),
    ],
)
def test_damage_is_a_rejection_with_its_line(tmp_path, text, under, line, part):
    bad = [item for item in members(tmp_path, text, *under) if isinstance(item, Rejected)]
    assert len(bad) == 1
    assert bad[0].line == line
    assert part in bad[0].reason


@pytest.mark.parametrize(
    ("text", "under", "kind"),
    [
        ("[1]", (), "value is not an object"),
        ('"a text"', (), "value is not an object"),
        ('{"a": [1]}', ("a",), "value is not an object"),
        ('{"a": 1}', ("b",), "the object has no such key"),
        ('{"a": 1, "a": 2}', (), "a key is given twice in one object"),
        ("[1", (), "not valid JSON"),
        ("hello", (), "not valid JSON"),
        ('{"a": hello}', ("a",), "not valid JSON"),
    ],
)
def test_valid_json_of_the_wrong_shape_is_not_called_invalid(tmp_path, text, under, kind):
    assert [item.kind for item in members(tmp_path, text, *under) if isinstance(item, Rejected)] == [kind]


class CountingText(str):
    """A text that counts the characters that were looked through for ends of lines."""

    looked_through = 0

    def count(self, part, start=0, end=None):
        CountingText.looked_through += (len(self) if end is None else end) - start
        return super().count(part, start, end)


def counted_characters(n):
    text = CountingText("{" + ",\n".join(f'"v{i}": {{"a": [1,\n 2]}}' for i in range(n)) + "}")
    CountingText.looked_through = 0
    read = list(base._members(base._Text("a.json", text), 0, ()))
    assert [item.line for item in read if isinstance(item, Record)] == [1 + 2 * i for i in range(n)]
    return CountingText.looked_through, len(text)


def test_lines_are_counted_in_one_pass():
    for n in (10, 1000):
        looked_through, length = counted_characters(n)
        assert looked_through <= length


def test_an_object_of_many_keys_is_checked_in_one_pass(tmp_path):
    """Counting each key among all of them took minutes for one object of 100,000."""
    path = tmp_path / "a.jsonl"
    path.write_text("{" + ", ".join(f'"{i}": 1' for i in range(100_000)) + ', "7": 2}', encoding="utf-8")
    (bad,) = read_json_records(path)
    assert isinstance(bad, Rejected)
    assert bad.reason.startswith("a key is given twice in one object, got ['7']")


def test_json_lines_are_read_as_they_are_taken(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf\n{"a": 1}\r\n\n{"a": \xe9}\n{"a": 3}')
    first, bad, last = read_json_records(path)
    assert isinstance(first, Record)
    assert isinstance(last, Record)
    assert (first.line, first.value, bad.line, last.line, last.value) == (2, {"a": 1}, 4, 5, {"a": 3})
    with path.open("ab") as file:
        file.write(b"\n" + b'{"a": "%s"}\n' % (b"x" * 2000) * 5000)
    tracemalloc.start()
    n = sum(isinstance(item, Record) for item in read_json_records(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n == 5002
    assert peak < 1_000_000 < 10_000_000 < path.stat().st_size


def test_another_encoding_is_named_with_its_line(tmp_path):
    (tmp_path / "a.json").write_bytes(b'{"a": 1,\n "b": "\xe9"}')
    (bad,) = read_json_members(tmp_path / "a.json")
    assert isinstance(bad, Rejected)
    assert bad.line == 2
    assert "UTF-8" in bad.reason
