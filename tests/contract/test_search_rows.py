"""What embedded search indexes find: every type, hostile questions, columns that are added, rows that are refused."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from penstock.core.change import Op
from penstock.errors import BadInput, Damaged, Mismatch, NotFound, PenstockError, SinkError, SinkUnavailable
from penstock.sinks import search, tantivy
from penstock.sinks.port import SinkContext
from penstock.sinks.stores.search.fts5 import SearchStore
from penstock.sinks.stores.search.fts5_tables import connect
from penstock.sinks.stores.sink import StoreSink
from penstock.views.indexes import list_indexes
from penstock.views.search import SCORE, SearchIndex
from search_kinds import KINDS, definition_of, path_of
from store_epochs import Epochs, spec_of
from typed_rows import EVERY_TYPE, HOSTILE, NULLS, ROW

PRODUCTS = "id long, title string, body string, price double"


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def found(given: Path | str, text: str, home: Path | None = None, **how: Any) -> list[Any]:
    """The ids of the rows that are found, the best first."""
    with SearchIndex(given, home) as index:
        return index.find(text, **how)["id"].to_pylist()


def test_rows_are_found_by_all_of_their_words_the_best_first(kind: str, tmp_path: Path) -> None:
    epochs = Epochs(definition_of(kind, tmp_path, "p", text=["title", "body"]).build, spec_of("p", PRODUCTS, "id", updating=True))
    shoes = {"id": 1, "title": "Red shoes", "body": "made of leather, for dancing"}
    epochs.give(
        shoes, {"id": 2, "title": "Red hat", "body": "not shoes, no shoe"}, {"id": 3, "title": "Blue Schuh", "body": "große"}
    )
    index = path_of(kind, tmp_path, "p")
    assert sorted(found(index, "red shoes")) == [1, 2]
    assert sorted(found(index, "shoe*")) == [1, 2]
    assert found(index, '"red shoes"') == [1]
    assert found(index, "dan*") == [1]
    assert sorted(found(index, "RED")) == [1, 2]
    assert found(index, "GROßE") == [3]
    assert found(index, "red", limit=1) != []
    assert found(index, "red", limit=0) == []
    assert found(index, "dance") == []
    epochs.give(shoes, {"id": 2, "title": "Green hat", "body": ""}, ops=[Op.DELETE, Op.INSERT])
    assert (found(index, "red"), found(index, "green"), found(index, "leather")) == ([], [2], [])


def test_every_type_comes_back_as_it_was(kind: str, tmp_path: Path) -> None:
    spec = spec_of("t", EVERY_TYPE, "id", "s")
    epochs = Epochs(definition_of(kind, tmp_path, "t").build, spec)
    nan = {**NULLS, "id": 3, "s": "end nan", "d": float("nan"), "f": float("-inf")}
    epochs.give(ROW, NULLS, nan)
    with SearchIndex(path_of(kind, tmp_path, "t")) as index:
        rows = {row["id"]: row for row in index.find("end").drop_columns([SCORE]).to_pylist()}
    assert rows[ROW["id"]] == ROW
    assert (str(rows[3].pop("d")), rows[3]) == ("nan", {name: value for name, value in nan.items() if name != "d"})
    assert set(rows) == {ROW["id"], 3}


def test_columns_may_have_names_that_the_index_uses_itself(kind: str, tmp_path: Path) -> None:
    ddl = "rank string, rowid string, rows string, words string, t0 string, texts int, `select` string"
    epochs = Epochs(definition_of(kind, tmp_path, "n").build, spec_of("n", ddl, "rank", "select"))
    row = {"rank": "r1", "rowid": "r2", "rows": "r3", "words": "r4", "t0": "r5", "texts": 6, "select": "r7"}
    epochs.give(row)
    for word in ("r1", "r2", "r3", "r4", "r5", "r7"):
        with SearchIndex(path_of(kind, tmp_path, "n")) as index:
            assert index.find(word).drop_columns([SCORE]).to_pylist() == [row]


def test_hostile_keys_stay_apart_and_go_by_themselves(kind: str, tmp_path: Path) -> None:
    spec = spec_of("k", "a string, b string, word string, id int", "a", "b", updating=True)
    epochs = Epochs(definition_of(kind, tmp_path, "k", text="word").build, spec)
    rows = [{"a": a, "b": b, "word": "all", "id": n} for n, (a, b) in enumerate((a, b) for a in HOSTILE for b in HOSTILE)]
    epochs.give(*rows)
    epochs.give(*rows)
    assert sorted(found(path_of(kind, tmp_path, "k"), "all", limit=1000)) == list(range(len(rows)))
    epochs.give(*rows[::2], ops=[Op.DELETE] * len(rows[::2]))
    assert sorted(found(path_of(kind, tmp_path, "k"), "all", limit=1000)) == list(range(1, len(rows), 2))


def test_rows_without_key_are_told_apart_by_their_position(kind: str, tmp_path: Path) -> None:
    epochs = Epochs(definition_of(kind, tmp_path, "l").build, spec_of("l", "id int, word string"))
    epochs.give({"id": 1, "word": "same"}, {"id": 1, "word": "same"})
    assert found(path_of(kind, tmp_path, "l"), "same") == [1, 1]


QUESTIONS = [
    "a AND",
    "NEAR(",
    "col:x",
    "-x",
    'x"y',
    "(x",
    "x' OR 1=1 --",
    "x\x00y",
    "^x",
    "x:",
    "{x}:y",
    "*x",
    "NOT x",
    '"x',
    "x**",
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_has_no_syntax_to_get_wrong(question: str, kind: str, tmp_path: Path) -> None:
    epochs = Epochs(definition_of(kind, tmp_path, "q").build, spec_of("q", "id int, word string", "id"))
    epochs.give({"id": 1, "word": f"it has {question} inside"}, {"id": 2, "word": "nothing"})
    assert found(path_of(kind, tmp_path, "q"), question) == [1]


@pytest.mark.parametrize("question", ["", "  ", "*", '""', "()", "\x00", "-"])
def test_a_question_without_words_is_refused(question: str, kind: str, tmp_path: Path) -> None:
    Epochs(definition_of(kind, tmp_path, "q").build, spec_of("q", "id int, word string", "id"))
    with pytest.raises(BadInput, match="no word to look for"):
        found(path_of(kind, tmp_path, "q"), question)


def test_a_row_that_says_little_else_fits_better(kind: str, tmp_path: Path) -> None:
    epochs = Epochs(definition_of(kind, tmp_path, "b").build, spec_of("b", "id int, word string", "id"))
    epochs.give({"id": 1, "word": "tea beside many other things"}, {"id": 2, "word": "tea"}, {"id": 3, "word": "cups"})
    with SearchIndex(path_of(kind, tmp_path, "b")) as index:
        answer = index.find("tea")
    assert answer["id"].to_pylist() == [2, 1]
    assert answer[SCORE].to_pylist() == sorted(answer[SCORE].to_pylist(), reverse=True)


def test_english_finds_words_by_their_stem(kind: str, tmp_path: Path) -> None:
    epochs = Epochs(definition_of(kind, tmp_path, "e", words="english").build, spec_of("e", "id int, word string", "id"))
    epochs.give({"id": 1, "word": "dancing"})
    assert found(path_of(kind, tmp_path, "e"), "dances") == [1]


def test_trigrams_find_parts_of_words_and_texts_without_spaces(tmp_path: Path) -> None:
    epochs = Epochs(search(tmp_path / "t.db", words="trigrams").build, spec_of("t", "id int, word string", "id"))
    epochs.give({"id": 1, "word": "dancing in 東京都庁前"})
    assert found(tmp_path / "t.db", "ancin") == found(tmp_path / "t.db", "都庁前") == [1]
    with pytest.raises(BadInput, match="trigrams"):
        tantivy(tmp_path / "t", words="trigrams")


def test_a_name_is_an_index_of_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = Epochs(search("products").build, spec_of("products", PRODUCTS, "id"), views=tmp_path / "views")
    epochs.give({"id": 1, "title": "shoes"})
    assert (tmp_path / "search" / "products.db").stat().st_mode & 0o077 == 0, "for its owner alone"
    words = Epochs(tantivy("letters").build, spec_of("letters", "id int, word string", "id"), views=tmp_path / "views")
    words.give({"id": 7, "word": "dear Ann"})
    assert (list_indexes(tmp_path), found("letters", "ann", home=tmp_path)) == (["letters", "products"], [7])
    assert (tmp_path / "search" / "letters").stat().st_mode & 0o077 == 0
    assert found("products", "shoes", home=tmp_path) == [1]
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    assert found("products", "shoes") == [1]
    with pytest.raises(NotFound, match="produkts") as missing:
        SearchIndex("produkts")
    assert missing.value.hint == "did you mean products?"


def test_a_column_is_added_and_other_differences_are_refused(kind: str, tmp_path: Path) -> None:
    index = path_of(kind, tmp_path, "c")
    Epochs(definition_of(kind, tmp_path, "c", text="title").build, spec_of("c", "id int, title string", "id")).give(
        {"id": 1, "title": "old"}
    )
    wider = Epochs(
        definition_of(kind, tmp_path, "c", text="title").build, spec_of("c", "id int, title string, n int", "id"), generation=2
    )
    wider.give({"id": 2, "title": "new", "n": 5})
    with SearchIndex(index) as opened:
        assert [row["n"] for word in ("old", "new") for row in opened.find(word).to_pylist()] == [None, 5]
    for spec, text in (
        (spec_of("c", "id int, title string, n int"), "title"),
        (spec_of("c", "id int, title string, n string", "id"), "title"),
        (spec_of("c", "id int, title string, n int, more string", "id"), "more"),
        (spec_of("other", "id int, title string, n int", "id"), "title"),
    ):
        with pytest.raises(Mismatch) as refused:
            Epochs(definition_of(kind, tmp_path, "c", text=text).build, spec, generation=3)
        assert refused.value.hint


def test_columns_that_are_no_text_are_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="'id' is no column of text"):
        Epochs(definition_of(kind, tmp_path, "x", text="id").build, spec_of("x", "id int, title string", "id"))
    with pytest.raises(SinkError, match="no column of text"):
        Epochs(definition_of(kind, tmp_path, "x").build, spec_of("x", "id int", "id"))


def short(path: Path) -> sqlite3.Connection:
    """SQLite with a limit that can be reached in a test."""
    connection = connect(path)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
    return connection


@pytest.mark.parametrize("stops", [False, True])
def test_a_row_that_is_too_long_is_refused(stops: bool, tmp_path: Path) -> None:
    definition, index = search(tmp_path / "r.db", text="title"), tmp_path / "r.db"

    def build(context: SinkContext) -> StoreSink:
        return StoreSink(context, SearchStore(definition, context.spec, index, short), stops)

    epochs = Epochs(build, spec_of("r", "id int, title string", "id"))
    rows = [{"id": 1, "title": "one"}, {"id": 2, "title": "x" * 200_000}, {"id": 3, "title": "one"}]
    if stops:
        with pytest.raises(SinkError, match="refuses a row"):
            epochs.give(*rows)
        assert found(index, "one") == []
    else:
        epochs.give(*rows)
        assert (found(index, "one"), [row["id"] for row in epochs.refused]) == ([1, 3], [2])
        again = Epochs(build, epochs.spec, generation=2)
        assert again.refused == epochs.refused, "told again: a crash may have come before they were kept"


@pytest.mark.parametrize("damage", [b"", b"not a database, and longer than a header of one" * 100])
def test_a_file_that_is_no_index_is_left_alone(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    path.write_bytes(damage)
    with pytest.raises(PenstockError):
        SearchIndex(path)
    if damage:
        with pytest.raises(Damaged):
            Epochs(search(path).build, spec_of("d", "id int, title string", "id"))
        assert path.read_bytes() == damage
    other = tmp_path / "other.db"
    sqlite3.connect(other).execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(SinkError, match="no search index"):
        Epochs(search(other).build, spec_of("d", "id int, title string", "id"))


def test_a_reader_sees_one_epoch_while_the_next_is_written(kind: str, tmp_path: Path) -> None:
    seen: list[list[int]] = []
    index = path_of(kind, tmp_path, "s")

    def look(point: str) -> None:
        if point == "store.marker":
            seen.append(found(index, "word"))

    epochs = Epochs(definition_of(kind, tmp_path, "s").build, spec_of("s", "id int, title string", "id"), fail=look)
    epochs.give({"id": 1, "title": "word"})
    epochs.give({"id": 2, "title": "word"})
    assert seen == [[], [1]]


@pytest.mark.parametrize("wrong", [{"words": "letters"}, {"on_error": "ignore"}])
def test_what_cannot_be_is_refused_where_it_is_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="not known"):
        search("x", **wrong)
    with pytest.raises(PenstockError):
        search("")
    with pytest.raises(PenstockError):
        search("a b")


def test_a_definition_names_its_sink() -> None:
    assert search("products").target == search("/var/lib/products.db").target == "products"


def test_a_directory_of_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear Ann")
    with pytest.raises(SinkError, match="is none"):
        Epochs(tantivy(tmp_path).build, spec_of("d", "id int, title string", "id"))
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
    with pytest.raises(SinkError):
        SearchIndex(tmp_path)


def test_two_writers_at_one_moment_take_turns(tmp_path: Path) -> None:
    spec, build, refused = spec_of("two", "id int, title string", "id"), tantivy(tmp_path / "two").build, list[type[Exception]]()

    def meanwhile(point: str) -> None:
        if point == "store.rows":
            with pytest.raises(SinkUnavailable, match="LockBusy"):
                Epochs(build, spec, generation=2)
            refused.append(SinkUnavailable)

    Epochs(build, spec, fail=meanwhile).give({"id": 1, "title": "one"})
    assert refused == [SinkUnavailable]
    assert Epochs(build, spec, generation=2).last == 0
