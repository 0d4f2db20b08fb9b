"""Every kind of file of a flow's directory, damaged in every way; outputs and directory that do not belong together (G11).

Either the flow recovers exactly, or it refuses, names what is wrong and says what can be done. It never starts anew by itself."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Flow, FlowTest, Tumbling, agg
from penstock.engine.run.epoch.sweep import KEEP
from penstock.errors import Mismatch, PenstockError

pytestmark = pytest.mark.faults


def shop() -> Flow:
    flow = Flow("shop")
    orders = flow.stream("orders", "user string, amount long, at timestamp", time="at", lateness="1 second")
    sales = orders.window(Tumbling("1 minute"), by="user").agg(total=agg.sum("amount"), name="sales")
    sales.view("sales").to("sales_topic")
    orders.join(orders.where("amount > 15", name="big"), on="user", within="5 seconds", name="near").view("near")
    return flow


def rows(minute: int) -> list[dict[str, Any]]:
    return [{"user": f"u{n % 3}", "amount": n, "at": f"2024-01-15T10:{minute:02d}:{n:02d}Z"} for n in range(20)]


def result(t: FlowTest) -> tuple[list[Any], ...]:
    sales, topic = ([(r["user"], r["window_start"], r["total"]) for r in t.rows(n)] for n in ("sales", "sales_topic"))
    return sorted(sales), sorted(topic), sorted((r["user"], r["amount"], r["big_amount"]) for r in t.rows("near"))


@pytest.fixture(scope="module")
def whole() -> tuple[list[Any], ...]:
    with shop().test() as t:
        t.send("orders", *rows(0), *rows(1), *rows(2), *rows(3))
        t.end()
        return result(t)


def run_and_die(t: FlowTest) -> Path:
    """The flow's directory after three epochs; the last is decided and was given to no sink. Another process comes next."""
    for minute in range(2):
        t.send("orders", *rows(minute))
        t.epoch()
    t.send("orders", *rows(2))
    t.die("after_decide")
    return t.directory / "flow"


def goes_on(t: FlowTest) -> PenstockError | None:
    """Starts again and reads the rest; the error if that is refused."""
    try:
        t.restart()
        t.send("orders", *rows(3))
        t.end()
    except PenstockError as error:
        return error
    return None


def flipped(path: Path, part: int) -> None:
    data = bytearray(path.read_bytes())
    data[min(len(data) * part // 8, len(data) - 1)] ^= 1 << part
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "emptied": lambda path: path.write_bytes(b""),
    "cut in half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "deleted": lambda path: path.unlink(),
    **{f"bit flipped at {part}/8": (lambda path, part=part: flipped(path, part)) for part in (1, 4, 7)},  # type: ignore[misc]
}


def kind(path: Path, directory: Path) -> str:
    """incarnation, epochs, generations, state/sales, staged view.sales …: files of one kind are used alike."""
    relative = path.relative_to(directory)
    if relative.parts[0] == "staged":
        return f"staged {path.name.split('-')[1]}"
    return "/".join(relative.parts[:-1]) or path.name


KINDS = (
    "incarnation",
    "epochs",
    "generations",
    "records",
    "state/sales",
    "state/near",
    "staged view.sales",
    "staged view.near",
    "staged topic.sales_topic",
)
NEEDED_FOR_NO_RESULT = ("generations", "records")


def files(directory: Path, name: str) -> list[Path]:
    """Of one kind; a file without a byte (the lock) has nothing to lose."""
    every = (p for p in sorted(directory.rglob("*")) if p.is_file() and p.stat().st_size)
    return [p for p in every if kind(p, directory) == name]


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_file_means_exact_recovery_or_a_refusal_that_names_it(name: str, whole: tuple[list[Any], ...]) -> None:
    with shop().test() as t:
        every = len(files(run_and_die(t), name))
    assert every
    left = [(damage, number) for damage in DAMAGE for number in range(every)]
    while left:
        with shop().test() as t:
            found = files(run_and_die(t), name)
            while left and refused_at_once(t, found, left[-1]):
                left.pop()
            if not left:
                return
            refused = goes_on(t)
            check(*left.pop(), refused, found)
            assert refused or result(t) == whole


def refused_at_once(t: FlowTest, found: list[Path], case: tuple[str, int]) -> bool:
    """Damages a file; where the flow does not even start, the file is put back and the next one can be tried."""
    damage, number = case
    content = found[number].read_bytes()
    DAMAGE[damage](found[number])
    try:
        t.restart()
    except PenstockError as refused:
        check(damage, number, refused, found)
        found[number].write_bytes(content)
        return True
    return False


def check(damage: str, number: int, refused: PenstockError | None, found: list[Path]) -> None:
    if refused:
        told = f"{found[number]} {damage}: {refused}"
        assert refused.hint, told
        assert named(found[number], refused), told
        assert not any(part in NEEDED_FOR_NO_RESULT for part in found[number].parts), told


def named(path: Path, refused: PenstockError) -> bool:
    """Its name, or (a decision that is gone is no file any more) the epoch that an output has and the flow has not."""
    return path.name in str(refused) or "has decided only up to" in str(refused)


def test_an_undamaged_flow_goes_on_exactly(whole: tuple[list[Any], ...]) -> None:
    with shop().test() as t:
        run_and_die(t)
        assert goes_on(t) is None
        assert result(t) == whole


def test_these_are_all_kinds_of_files_that_a_flow_has() -> None:
    with shop().test() as t:
        directory = run_and_die(t)
        assert {kind(p, directory) for p in directory.rglob("*") if p.is_file() and p.stat().st_size} == set(KINDS)


# Outputs and directory that do not belong together.


def forget_outputs(t: FlowTest, what: str) -> None:
    if what in ("views", "both"):
        for path in (t.directory / "views").iterdir():
            path.unlink()
    if what in ("topic", "both"):
        t.log.delete("sales_topic")


@pytest.mark.parametrize("what", ["views", "topic", "both"])
def test_lost_outputs_are_filled_again_from_the_epochs_that_are_kept(what: str, whole: tuple[list[Any], ...]) -> None:
    with shop().test() as t:
        run_and_die(t)
        forget_outputs(t, what)
        assert goes_on(t) is None
        assert result(t) == whole


@pytest.mark.parametrize("what", ["views", "topic", "both"])
def test_outputs_lost_after_their_epochs_were_swept_are_refused(what: str) -> None:
    with shop().test() as t:
        for minute in range(KEEP + 3):
            t.send("orders", *rows(minute))
            t.epoch()
        t.stop()
        forget_outputs(t, what)
        with pytest.raises(Mismatch, match="lacks the epochs 0 to"):
            t.restart()


def test_outputs_of_a_flow_whose_directory_is_gone_are_not_written_again() -> None:
    with shop().test() as t:
        t.send("orders", *rows(0), *rows(1))
        t.end()
        before = result(t)
        t.stop()
        shutil.rmtree(t.directory / "flow")
        for _ in range(2):  # also when it is tried again
            with pytest.raises(Mismatch, match="belongs to another incarnation of flow 'shop'"):
                t.restart()
        assert view_rows(t) == before[0]


def view_rows(t: FlowTest) -> list[Any]:
    from penstock import View

    with View(t.directory / "views", "sales") as view:
        return sorted((r["user"], r["window_start"], r["total"]) for r in view.rows().to_pylist())


def test_a_directory_that_is_older_than_its_outputs_is_refused(tmp_path: Path) -> None:
    with shop().test() as t:
        t.send("orders", *rows(0))
        t.epoch()
        shutil.copytree(t.directory / "flow", tmp_path / "older")
        t.send("orders", *rows(1))
        t.epoch()
        t.stop()
        shutil.rmtree(t.directory / "flow")
        shutil.copytree(tmp_path / "older", t.directory / "flow")
        with pytest.raises(Mismatch, match="the flow's directory is older than its output"):
            t.restart()
