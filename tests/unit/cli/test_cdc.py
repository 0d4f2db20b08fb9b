"""penstock cdc, as a user calls it, over a database that is a list in memory."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.capture import kind as kinds
from penstock.capture.kind import Finding, Kept
from penstock.capture.registry import LOCK, Captures
from penstock.errors import CaptureError, Disconnected, NotFollowable
from penstock.log.open import open_log
from unit.cli.calling import Call, calls_of
from unit.cli.toy_kind import ToyDatabase, ToyKind

URL = "toy://me@db/shop"


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ToyDatabase:
    made = ToyDatabase()
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(kinds, "KINDS", {"debezium": lambda: ToyKind(made), "poll": lambda: ToyKind(made)})
    return made


@pytest.fixture
def call(database: ToyDatabase) -> Call:
    return calls_of("cdc")


def test_a_capture_is_added_run_shown_and_removed(call: Call, database: ToyDatabase) -> None:
    added = call("add", "shop", URL, "--tables", "users,orders", "--tables", "items")
    assert (added.code, added.out) == (0, "follow users;\nfollow orders;\nfollow items;\n")
    assert "capture shop follows 3 tables into shop.public.items … shop.public.users" in added.err
    ran = call("run", "shop", "--catch-up")
    assert ran.code == 0
    assert "shop: following 3 tables\n" in ran.err
    assert "shop: caught up · " in ran.err.splitlines()[-1]
    (row,) = call("status").rows
    assert (row["capture"], row["state"], row["engine"], row["database"]) == ("shop", "stopped", "debezium", URL)
    assert row["batch"] > 0
    assert {each["topic"] for each in row["topics"]} == {"shop.public.users", "shop.public.orders", "shop.public.items"}
    assert all(each["rows"] > 0 for each in row["topics"])
    removed = call("remove", "shop", "--yes")
    assert (removed.code, removed.err) == (0, "shop is dropped\ncapture shop is forgotten; its topics stay\n")
    assert not database.prepared
    assert "shop.public.users" in open_log().topics()


def test_topics_go_with_a_capture_only_when_asked(call: Call, database: ToyDatabase) -> None:
    call("add", "shop", URL, "--tables", "*")
    call("run", "shop", "--catch-up", "--quiet")
    answer = call("remove", "shop", "--topics", "--yes")
    assert "4 topics are deleted" in answer.err
    assert open_log().topics() == []


def test_nothing_is_removed_when_the_answer_is_no(call: Call, database: ToyDatabase) -> None:
    call("add", "shop", URL, "--tables", "users")
    asked = call("remove", "shop", given="n\n")
    assert asked.code == 130
    assert f"forget capture shop of {URL} (1 tables), drop what it has in the database?" in asked.out
    assert database.prepared
    assert Captures().names() == ["shop"]


def test_a_dry_run_shows_the_statements_and_changes_nothing(call: Call, database: ToyDatabase) -> None:
    answer = call("add", "shop", URL, "--tables", "users", "--dry-run")
    assert (answer.code, answer.out) == (0, "follow users;\n")
    assert not database.prepared
    assert Captures().names() == []


def test_tables_are_added_to_a_capture_that_is_there(call: Call, database: ToyDatabase) -> None:
    call("add", "shop", URL, "--tables", "users")
    assert call("add", "shop", "--tables", "orders,users").out == "follow orders;\n"
    assert database.prepared["shop"] == (("public", "users"), ("public", "orders"))
    assert "follows 2 tables already" in call("add", "shop", "--tables", "orders").err


def test_tables_are_left_out_where_that_is_said(call: Call, database: ToyDatabase) -> None:
    call("add", "shop", URL, "--tables", "*", "--except", "items")
    assert database.prepared["shop"] == (("public", "users"), ("public", "orders"))
    assert call("add", "all", URL, "--tables", "items", "--except", "items").code == 3


def test_what_a_check_finds_wrong_is_refused_with_what_mends_it(call: Call, database: ToyDatabase) -> None:
    database.findings = [Finding("error", "the list is closed", ["open the list;"]), Finding("warning", "it rains")]
    answer = call("add", "shop", URL, "--tables", "users")
    assert answer.code == 2
    assert "✗ the list is closed\n      open the list;" in answer.err
    assert "it rains" not in answer.err
    assert not database.prepared
    assert Captures().names() == []


def test_a_check_prints_every_finding_and_fails_for_an_error_alone(call: Call, database: ToyDatabase) -> None:
    database.findings = [Finding("ok", "it is there"), Finding("warning", "it rains", ["take an umbrella;"])]
    answer = call("check", URL)
    assert (answer.code, answer.out) == (0, "✓ it is there\n! it rains\n    take an umbrella;\n")
    database.findings.append(Finding("error", "it burns", ["water;"]))
    assert call("check", URL).code == 4
    lines = call("check", URL, "--output", "jsonl")
    assert lines.code == 4
    assert lines.rows[-1] == {"level": "error", "what": "it burns", "mend": ["water;"]}


def test_a_preparation_that_fails_half_way_is_taken_back(call: Call, database: ToyDatabase) -> None:
    database.breaks = True
    answer = call("add", "shop", URL, "--tables", "users")
    assert (answer.code, answer.err) == (1, "error: the list is torn\n")
    assert not database.prepared
    assert Captures().names() == []
    database.breaks = False
    assert call("add", "shop", URL, "--tables", "users").code == 0


def test_tables_that_could_not_be_added_leave_the_capture_as_it_was(call: Call, database: ToyDatabase) -> None:
    call("add", "shop", URL, "--tables", "users")
    database.breaks = True
    assert call("add", "shop", "--tables", "orders").code == 1
    assert Captures().get("shop").tables == (("public", "users"),)
    assert Captures().get("shop").prepared
    assert "shop" in database.prepared


def test_a_capture_whose_preparation_was_killed_is_not_run_and_is_added_again(call: Call, database: ToyDatabase) -> None:
    call("add", "shop", URL, "--tables", "users")
    known = Captures().get("shop")
    Captures().change(replace(known, prepared=False, options={}))  # as a kill would leave it
    refused = call("run", "shop")
    assert refused.code == 2
    assert "not prepared to the end" in refused.err
    (row,) = call("status").rows
    assert row["state"] == "not prepared"
    assert call("add", "shop", "other://db", "--tables", "users").code == 1
    assert call("add", "shop", URL, "--tables", "users,orders").code == 0
    assert Captures().get("shop").prepared
    assert Captures().get("shop").id == known.id, "what was prepared before is known by it"


def test_a_capture_is_not_forgotten_while_its_database_is_away(call: Call, database: ToyDatabase) -> None:
    call("add", "shop", URL, "--tables", "users")
    for away in (Disconnected("nobody answers"), NotFollowable("the password is wrong")):
        database.away = away
        refused = call("remove", "shop", "--yes")
        assert refused.code == 1
        assert away.what in refused.err
        assert "drop shop;" in refused.err
        assert Captures().names() == ["shop"]
    forced = call("remove", "shop", "--yes", "--force")
    assert forced.code == 0
    assert "drop shop;" in forced.err
    assert Captures().names() == []
    assert database.prepared, "it is still there, and was told"


def test_what_is_in_the_database_may_be_kept(call: Call, database: ToyDatabase) -> None:
    call("add", "shop", URL, "--tables", "users")
    answer = call("remove", "shop", "--yes", "--keep-slot")
    assert "drop shop;" in answer.err
    assert database.prepared
    assert Captures().names() == []


def test_a_capture_that_runs_is_neither_run_again_nor_removed(call: Call, database: ToyDatabase) -> None:
    call("add", "shop", URL, "--tables", "users")
    with Captures().storage("shop").lock(LOCK):
        for words in (("run", "shop", "--catch-up"), ("remove", "shop", "--yes")):
            answer = call(*words)
            assert (answer.code, "is running already" in answer.err) == (1, True)
        (row,) = call("status").rows
        assert row["state"] == "running"
    assert Captures().names() == ["shop"]
    assert database.prepared


def test_a_lost_slot_and_a_log_that_grows_are_unhealthy(call: Call, database: ToyDatabase) -> None:
    call("add", "shop", URL, "--tables", "users")
    database.kept = Kept(lag_bytes=5, kept_bytes=2_000_000)
    assert call("status").code == 0
    grown = call("status", "--limit", "1MB")
    assert (grown.code, "keeps 1.9 MiB of its log" in grown.err) == (4, True)
    database.kept = Kept(kept_bytes=90, limit_bytes=100)
    assert call("status").code == 4, "the server would drop it soon"
    database.kept = Kept(trouble="the slot is gone")
    lost = call("status", "shop")
    assert (lost.code, "✗ shop: the slot is gone" in lost.err, lost.rows[0]["trouble"]) == (4, True, "the slot is gone")


def test_a_database_that_does_not_answer_leaves_what_the_journal_says(call: Call, database: ToyDatabase) -> None:
    call("add", "shop", URL, "--tables", "users")
    call("run", "shop", "--catch-up", "--quiet")
    database.away = Disconnected("nobody answers")
    answer = call("status")
    assert answer.code == 0
    assert answer.rows[0]["batch"] > 0
    assert answer.rows[0]["kept_bytes"] is None
    assert "the database does not answer: nobody answers" in answer.err


def test_a_database_that_is_away_for_a_moment_is_waited_for(call: Call, database: ToyDatabase) -> None:
    database.cut_off = (2,)
    call("add", "shop", URL, "--tables", "users")
    answer = call("run", "shop", "--catch-up")
    assert answer.code == 0
    assert "shop waits, and tries again: the script is away\n" in answer.err
    assert "shop goes on after " in answer.err


def test_an_error_of_one_capture_ends_all_with_its_message(
    call: Call, database: ToyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        call("add", name, URL, "--tables", "users", "--topics", "{name}.{table}")

    def broken(kind: ToyKind, definition: object, storage: object) -> object:
        raise CaptureError("the list is torn")

    monkeypatch.setattr(ToyKind, "open", broken)
    answer = call("run", "one", "two")
    assert (answer.code, answer.err) == (1, "error: the list is torn\n")


def test_topics_of_others_are_not_taken(call: Call, database: ToyDatabase) -> None:
    calls_of("topic")("create", "public.users")
    answer = call("add", "shop", URL, "--tables", "users", "--topics", "{schema}.{table}")
    assert (answer.code, "would be called the same" in answer.err) == (2, True)
    assert not database.prepared


def test_topics_of_an_earlier_capture_are_told(call: Call, database: ToyDatabase) -> None:
    for _ in range(2):
        answer = call("add", "shop", URL, "--tables", "users")
        call("run", "shop", "--catch-up", "--quiet")
        call("remove", "shop", "--yes")
    assert "topics of an earlier capture shop are there" in answer.err


def test_a_poll_says_how_often(call: Call, database: ToyDatabase) -> None:
    assert call("add", "crm", URL, "--tables", "users", "--poll", "1 hour").code == 0
    known = Captures().get("crm")
    assert (known.engine, known.options["every"]) == ("poll", "1 hour")
    assert call("add", "other", URL, "--tables", "users", "--poll", "often").code == 2
    assert call("add", "other", URL, "--tables", "users", "--engine", "poll").code == 2
    assert call("add", "other", URL, "--tables", "users", "--engine", "debezium", "--poll", "1 hour").code == 2


def test_what_a_capture_was_told_is_kept(
    call: Call, database: ToyDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush")
    secret.chmod(0o600)
    monkeypatch.chdir(tmp_path)
    told = ("--option", "max.batch.size=400", "--option", "database.ssl.mode=required")
    words = ("--topics", "postgres.{table}", "--flat", "--partitions", "3", "--password-file", "secret", *told)
    assert call("add", "shop", URL, "--tables", "users", *words).code == 0
    known = Captures().get("shop")
    assert (known.topics, known.flat, known.partitions, known.secret.file) == ("postgres.{table}", True, 3, str(secret))
    assert known.options["properties"] == {"max.batch.size": "400", "database.ssl.mode": "required"}
    assert "hush" not in json.dumps(known.json())


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("run",), 2, "Missing argument"),
        (("run", "nobody"), 3, "there is no capture 'nobody'"),
        (("status", "nobody"), 3, "there is no capture 'nobody'"),
        (("remove", "nobody", "--yes"), 3, "there is no capture 'nobody'"),
        (("add", "nobody", "--tables", "users"), 3, "there is no capture 'nobody'"),
        (("add", "a/b", URL, "--tables", "users"), 2, "cannot name a capture"),
        (("add", "shop", URL), 2, "which tables?"),
        (("add", "shop", URL, "--tables", "nothing"), 3, "means no table"),
        (("add", "shop", "somewhere", "--tables", "users"), 2, "no URL of a database"),
        (("add", "shop", "toy://[db", "--tables", "users"), 2, "cannot be read"),
        (("add", "shop", URL, "--tables", "users", "--engine", "triggers"), 2, "no engine 'triggers'"),
        (("add", "shop", URL, "--tables", "users", "--engine", "magic"), 2, "'magic' is not one of"),
        (("add", "shop", URL, "--tables", "users", "--topics", "{nothing}"), 2, "cannot name topics"),
        (("add", "shop", URL, "--tables", "users", "--password-env", "A", "--password-file", "b"), 2, "not in both"),
        (("add", "shop", URL, "--tables", "users", "--partitions", "0"), 2, "--partitions"),
        (("add", "shop", URL, "--tables", "users", "--option", "transforms=x"), 2, "cannot be told 'transforms'"),
        (("add", "shop", URL, "--tables", "users", "--option", "max.batch.size"), 2, "has a name and a value"),
        (("add", "shop", URL, "--tables", "users", "--poll", "1 hour", "--option", "max.batch.size=1"), 2, "Debezium's connectors"),
        (("status", "--limit", "much"), 2, "is no size"),
    ],
)
def test_wrong_words_are_refused(call: Call, database: ToyDatabase, words: tuple[str, ...], code: int, told: str) -> None:
    answer = call(*words)
    assert answer.code == code
    assert told in answer.err
    assert not database.prepared


def test_only_tables_of_a_capture_that_is_there_can_be_changed(call: Call, database: ToyDatabase) -> None:
    call("add", "shop", URL, "--tables", "users")
    assert call("add", "shop", URL, "--tables", "orders").code == 1
    answer = call("add", "shop", "--tables", "orders", "--flat", "--partitions", "2")
    assert (answer.code, "--partitions, --flat of a capture cannot be changed" in answer.err) == (2, True)
    assert call("add", "shop", "--tables", "orders", "--option", "max.batch.size=1").code == 2


def test_an_empty_home_has_no_captures(call: Call) -> None:
    answer = call("status")
    assert (answer.code, answer.out) == (0, "")
    assert "no captures here" in answer.err


def test_the_help_teaches_by_examples() -> None:
    assert "penstock cdc add shop postgresql://shop@db/shop" in calls_of("cdc")("--help").out
    for command in ("check", "add", "run", "status", "reconcile", "remove"):
        answer = calls_of("cdc")(command, "--help")
        assert (answer.code, f"penstock cdc {command}" in answer.out) == (0, True), command
