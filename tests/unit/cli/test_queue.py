"""penstock queue, command by command, as a user calls it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Queue
from unit.cli.calling import Answer, Call, calls_of
from waiting import until

PENSTOCK = [sys.executable, "-c", "from penstock.cli.main import main; main()", "queue"]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("PENSTOCK_QUEUES", "")
    return calls_of("queue")


@pytest.fixture
def emails(call: Call) -> Queue:
    """Three messages, of ann, bob and cid."""
    queue = Queue.open("emails")
    queue.send_many({"to": name, "n": n} for n, name in enumerate(["ann", "bob", "cid"]))
    return queue


def kill(queue: Queue, reason: str = "timeout\n  at once") -> None:
    with queue.consumer(prefetch=100) as consumer:
        for message in consumer.receive(100):
            message.reject(reason)


def test_create_makes_a_queue_with_its_settings(call: Call) -> None:
    words = ["--lease", "2 minutes", "--tries", "3", "--retry", "5 seconds", "--ordered", "--dead", "morgue"]
    limit = ["--policy", "push-back", "--max-messages", "10", "--max-bytes", "1MB"]
    answer = call("create", "emails", *words, *limit)
    assert answer.code == 0
    assert "what cannot be done goes to morgue" in answer.err
    spec = Queue.open("emails").spec
    assert (spec.lease.total_seconds(), spec.tries, spec.retry.total_seconds(), spec.ordered) == (120, 3, 5, True)
    assert (spec.limit.policy, spec.limit.messages, spec.limit.bytes) == ("push-back", 10, 1_000_000)
    told = call("describe", "emails").err
    assert "lease 2 minutes · 3 tries · rests 5 seconds in between · one message of a key at a time" in told
    assert "push-back beyond 10 messages and 1,000,000 bytes · dead letters in morgue" in told
    assert call("create", "emails").code == 1


def test_create_binds_a_queue_to_routes_and_headers_of_a_source(call: Call) -> None:
    assert call("create", "packing", "--source", "orders", "--route", "orders.*.eu", "--route", "vip.#").code == 0
    assert call("create", "audit", "--source", "orders", "--header", "kind=paid", "--header", "big=1", "--any-header").code == 0
    assert call("create", "late", "--source", "orders", "--start", "latest").code == 0
    takes = {row["queue"]: row["takes"] for row in call("list").rows if not row["queue"].endswith(".dead")}
    assert takes == {
        "packing": "orders.*.eu or vip.# of orders",
        "audit": "# with kind=paid or big=1 of orders",
        "late": "all of orders",
    }
    call("send", "packing", "1", "--route", "orders.new.eu", "--header", "kind=paid")
    call("send", "packing", "2", "--route", "orders.new.us")
    assert [call("peek", name).bodies for name in ("packing", "audit", "late")] == [[1], [1], [1, 2]]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["create", "a/b"], 2, "cannot name a queue"),
        (["create", "x", "--lease", "long"], 2, "cannot read lease"),
        (["create", "x", "--policy", "drop-oldest"], 2, "drop-oldest needs a limit"),
        (["create", "x", "--header", "kind"], 2, "is no header"),
        (["create", "x", "--any-header"], 2, "needs headers"),
        (["create", "x", "--max-bytes", "many"], 2, "--max-bytes 'many' is no size"),
        (["describe", "emial"], 3, "did you mean emails?"),
        (["send", "nobody", "1"], 3, "there is no queue nobody"),
        (["send", "emails", "{", "--priority", "3"], 2, "nothing was sent"),
        (["send", "emails", "1", "2", "--id", "x"], 2, "--id is for one message"),
        (["send", "emails", "1", "--route", "a b"], 2, "cannot be a route"),
        (["send", "emails", "1", "--format", "raw", "--key-field", "to"], 2, "raw lines have no fields"),
        (["receive", "emails", "--follow"], 2, "add --ack, --nack or --reject"),
        (["receive", "emails", "--delay", "1 second"], 2, "add --nack"),
        (["move", "emails", "nobody"], 3, "there is no queue nobody"),
        (["move", "emails", "emails"], 2, "to itself"),
        (["redrive", "emails"], 2, "is not a dead letter"),
        (["redrive", "emails", "--set", "x"], 2, "sets nothing"),
        (["redrive", "emails", "--where", "x >"], 2, "cannot read the condition"),
        (["purge", "nobody", "--yes"], 3, "there is no queue nobody"),
        (["delete", "nobody", "--yes"], 3, "there is no queue nobody"),
        (["list", "--at", "http://host"], 2, "not an address of queues"),
        (["list", "--at", "memory:"], 2, "queues in memory belong to the process that made them"),
    ],
)
def test_what_cannot_be_is_told(call: Call, emails: Queue, words: list[str], code: int, said: str) -> None:
    answer = call(*words)
    assert answer.code == code
    assert said in answer.err
    assert emails.state().ready == 3


def test_list_tells_what_is_in_every_queue(call: Call, emails: Queue) -> None:
    emails.send("later", delay="1 hour")
    with emails.consumer() as consumer:
        consumer.receive()[0].reject("so")
        [_] = consumer.receive()
        rows = {row["queue"]: row for row in call("list").rows}
    assert [rows["emails"][name] for name in ("ready", "delayed", "lent", "dead_letters")] == [1, 1, 1, 1]
    assert rows["emails"]["oldest_seconds"] >= 0
    assert rows["emails.dead"]["ready"] == 1
    assert "emails.dead" in call("list", "--output", "table").out


def test_without_queues_it_says_how_one_is_made(call: Call) -> None:
    answer = call("list")
    assert (answer.code, answer.out) == (0, "")
    assert "penstock queue create NAME makes one" in answer.err


def test_describe_tells_who_holds_what_and_what_became_of_the_others(call: Call, emails: Queue) -> None:
    with emails.consumer(name="reader") as consumer:
        first, second = consumer.receive(2)
        first.ack()
        second.nack()
        consumer.receive()
        answer = call("describe", "emails")
        table = call("describe", "emails", "--output", "table")
    [row] = answer.rows
    assert [row[name] for name in ("ready", "lent", "sent", "acked", "lent_again", "dead")] == [1, 1, 3, 1, 1, 0]
    [held] = row["holders"]
    assert (held["consumer"], held["messages"]) == ("reader", 1)
    assert 0 < held["seconds"] <= 30
    assert "reader holds 1 message, the next lease runs out in" in answer.err
    assert "so far: 3 sent · 1 acked · 1 lent again" in table.err
    assert "holders" not in table.out


def test_follow_shows_that_a_worker_was_killed(call: Call, emails: Queue) -> None:
    """It keeps its leases while it lives; when the last ones have run out its messages come back."""
    program = (
        "import threading\n"
        "from penstock import Queue\n"
        "Queue.open('emails').work(lambda message: threading.Event().wait(), 3, lease='1 second', name='victim')\n"
    )
    command = [*PENSTOCK, "describe", "emails", "--follow", "--every", "20 ms", "--output", "jsonl"]
    with (
        subprocess.Popen([sys.executable, "-c", program]) as victim,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as shown,
    ):
        assert shown.stdout
        rows = map(json.loads, shown.stdout)
        held = next(row["holders"] for row in rows if row["lent"] == 3)
        victim.kill()
        last = next(row for row in rows if row["lent"] == 0)
        shown.send_signal(signal.SIGINT)
        shown.stdout.read()
    assert shown.returncode == 0
    assert [(one["consumer"], one["messages"]) for one in held] == [("victim", 3)]
    assert (last["ready"], last["holders"]) == (3, [])


def test_send_takes_words_and_prints_their_ids(call: Call) -> None:
    Queue.open("emails")
    said = ["--key", "k", "--header", "trace=7", "--priority", "2", "--ttl", "1 hour"]
    answer = call("send", "emails", '{"to": "ann"}', "3", *said)
    assert answer.code == 0
    assert "sent 2 messages to emails · 0 rejected" in answer.err
    rows = call("peek", "emails").rows
    assert [row["id"] for row in rows] == answer.out.split()
    assert rows[0] | {"id": "", "sent": ""} == {
        "id": "",
        "key": "k",
        "priority": 2,
        "attempt": 0,
        "sent": "",
        "origin": "emails/0/0",
        "headers": {"trace": "7"},
        "body": {"to": "ann"},
    }
    assert call("send", "emails", "x", "--id", "m-1", "--format", "raw", "--delay", "1 hour").out == "m-1\n"


def test_send_reads_lines_and_takes_id_key_and_route_from_them(call: Call) -> None:
    Queue.open("emails")
    lines = ['{"id": 7, "to": "ann", "kind": "mail.new"}', "{", '{"to": "bob"}', "", '{"id": 8, "to": "cid", "kind": "a b"}']
    answer = call("send", "emails", "--id-field", "id", "--key-field", "to", "--route-field", "kind", given="\n".join(lines))
    assert answer.code == 0
    assert "sent 1 message to emails · 3 rejected" in answer.err
    assert "line 2: not JSON" in answer.err
    assert "line 3: it has no field 'id' for its id" in answer.err
    assert "line 5: 'a b' cannot be a route" in answer.err
    [row] = call("peek", "emails").rows
    assert (row["id"], row["key"], row["route"]) == ("7", "ann", "mail.new")


def test_send_stops_at_a_line_that_is_refused_if_asked_to(call: Call) -> None:
    Queue.open("emails")
    answer = call("send", "emails", "--on-error", "stop", given="1\n2\n{\n4\n")
    assert answer.code == 1
    assert "stopped at the first line that was refused: sent 2 messages to emails · 1 rejected" in answer.err
    assert call("peek", "emails").bodies == [1, 2]


def test_send_reads_a_file_as_it_is(call: Call, tmp_path: Path) -> None:
    Queue.open("lines")
    (tmp_path / "lines.txt").write_bytes(b"a\n\nb\xff\n" * 2_000)
    answer = call("send", "lines", "--file", str(tmp_path / "lines.txt"), "--format", "raw")
    assert "sent 6,000 messages to lines · 0 rejected" in answer.err
    assert call("peek", "lines", "--max", "3").bodies == ["a", "", "base64:Yv8="]
    assert call("send", "lines", "x", "--file", str(tmp_path / "lines.txt")).code == 2


def test_send_tells_what_a_full_queue_did(call: Call) -> None:
    call("create", "some", "--policy", "drop-newest", "--max-messages", "2")
    assert "sent 2 messages to some · 0 rejected · 1 dropped, the queue is full" in call("send", "some", given="1\n2\n3\n").err
    call("create", "few", "--policy", "push-back", "--max-messages", "2")
    assert call("send", "few", given="1\n2\n").code == 0
    answer = call("send", "few", "--wait", "1 ms", given="3\n")
    assert answer.code == 1
    assert "failed; 0 messages are known to be in the queue" in answer.err
    assert "queue few is full: it holds at most 2 messages" in answer.err


def test_receive_gives_back_what_it_shows_unless_it_is_told_otherwise(call: Call, emails: Queue) -> None:
    for _ in range(7):
        answer = call("receive", "emails", "--max", "2")
        assert [(row["body"]["to"], row["attempt"]) for row in answer.rows] == [("ann", 1), ("bob", 1)]
    assert (emails.state().ready, emails.state().lent) == (3, 0)


def test_receive_acks_gives_back_and_rejects(call: Call, emails: Queue) -> None:
    assert call("receive", "emails", "--ack").rows[0]["body"]["to"] == "ann"
    assert call("receive", "emails", "--nack", "--delay", "1 hour", "--reason", "later").rows[0]["body"]["to"] == "bob"
    assert call("receive", "emails", "--reject", "--reason", "test data").rows[0]["body"]["to"] == "cid"
    state = emails.state()
    assert (state.ready, state.delayed, state.counts["acked"], state.counts["dead"]) == (0, 1, 1, 1)
    [letter] = call("peek", "emails.dead").rows
    assert (letter["dead"]["queue"], letter["dead"]["reason"]) == ("emails", "test data")
    assert "headers" not in letter


def test_receive_ends_with_3_if_there_is_nothing(call: Call) -> None:
    Queue.open("emails")
    assert call("receive", "emails", "--wait", "10 ms") == Answer(3, "", "")
    assert call("peek", "emails").code == 0


def test_receive_shows_a_table_with_the_columns_that_say_anything(call: Call, emails: Queue) -> None:
    out = call("receive", "emails", "--max", "3", "--output", "table").out
    assert "attempt" in out
    assert "route" not in out
    assert call("peek", "emails", "--output", "csv").out.splitlines()[0].startswith("id,key,route,priority,attempt,sent")


def test_receive_follows_until_it_is_interrupted(call: Call, emails: Queue, tmp_path: Path) -> None:
    command = [*PENSTOCK, "receive", "emails", "--ack", "--follow", "--output", "jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout
        assert [json.loads(following.stdout.readline())["body"]["to"] for _ in range(3)] == ["ann", "bob", "cid"]
        emails.send("more")
        assert json.loads(following.stdout.readline())["body"] == "more"
        assert until(lambda: emails.state().counts["acked"] == 4)
        following.send_signal(signal.SIGINT)
        assert following.wait(60) == 0


def test_what_a_reader_did_not_get_is_not_acked(call: Call, emails: Queue) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*PENSTOCK, "receive", "emails", "--ack", "--max", "3"], stdout=writing, check=False)
    os.close(writing)
    assert done.returncode == 0
    assert (emails.state().ready, emails.state().counts.get("acked", 0)) == (3, 0)


def test_redrive_shows_what_it_would_do_and_does_it(call: Call, emails: Queue) -> None:
    kill(emails)
    answer = call("redrive", "emails.dead", "--dry-run", "--set", "to=dan", "--set", "by.whom=1", "--max", "1")
    assert answer.rows[0] | {"id": ""} == {
        "id": "",
        "to": "emails",
        "body": '{"to":"ann","n":0}',
        "sent_as": '{"to":"dan","n":0,"by":{"whom":1}}',
        "reason": "timeout",
    }
    assert "nothing moved; 1 message of emails.dead would be · 2 left where they are" in answer.err
    answer = call("redrive", "emails.dead", "--where", "n > 0 and reason like 'timeout%'", "--set", "n=7")
    assert answer.out == ""
    assert "moved 2 messages of emails.dead · 1 left where they are" in answer.err
    assert call("peek", "emails").bodies == [{"to": "bob", "n": 7}, {"to": "cid", "n": 7}]
    assert "dead" not in call("peek", "emails").rows[0]


def test_redrive_and_move_go_where_they_are_told(call: Call, emails: Queue) -> None:
    Queue.open("parked")
    assert "moved 1 message" in call("move", "emails", "parked", "--max", "1", "--output", "jsonl").err
    kill(emails)
    assert call("redrive", "emails.dead", "--to", "parked").code == 0
    assert [body["to"] for body in call("peek", "parked").bodies] == ["ann", "bob", "cid"]


def test_a_body_that_is_no_object_cannot_be_edited_and_nothing_moves(call: Call) -> None:
    emails = Queue.open("emails")
    emails.send_many(["3", "no JSON"])
    kill(emails)
    assert "it is no JSON object there" in call("redrive", "emails.dead", "--set", "to=ann").err
    answer = call("redrive", "emails.dead", "--where", "value = 'no JSON'", "--set", "to=ann")
    assert answer.code == 2
    assert "is not JSON" in answer.err
    assert emails.dead_letters.state().ready == 2


def test_purge_and_delete_ask_first(call: Call, emails: Queue) -> None:
    assert call("purge", "emails", given="n\n").code != 0
    assert emails.state().ready == 3
    assert "removed 3 messages of queue emails" in call("purge", "emails", given="y\n").err
    assert call("delete", "emails", given="n\n").code != 0
    assert "deleted queue emails with 0 messages" in call("delete", "emails", "--yes").err
    assert call("describe", "emails").code == 3
    assert call("describe", "emails.dead").code == 0
