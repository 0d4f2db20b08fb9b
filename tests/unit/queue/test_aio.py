"""Queues in an event loop."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from penstock import Queue, Reject
from penstock.errors import LeaseLost
from penstock.log.groups.leases import ManualClock
from penstock.queue.client.aio import AsyncReceived
from penstock.queue.client.worker import Worked
from penstock.queue.message import Received


def run(todo: Coroutine[Any, Any, object]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(todo, 120)

    asyncio.run(limited())


def test_messages_are_sent_and_taken(emails: Queue) -> None:
    async def main() -> None:
        assert await emails.send_async({"n": 1}, id="m-1") == "m-1"
        async with emails.consumer_async() as consumer:
            async for message in consumer:
                async with message:
                    assert message.json() == {"n": 1}
                break
            assert await consumer.receive(wait="10 ms") == []
        assert emails.state().counts["acked"] == 1

    run(main())


def test_a_loop_waits_while_others_run_and_ends_when_it_is_stopped(emails: Queue) -> None:
    seen: list[str] = []

    async def main() -> None:
        async with emails.consumer_async() as consumer:

            async def read() -> None:
                async for message in consumer:
                    seen.append(message.text)
                    await message.ack()
                    if message.text == "2":
                        consumer.stop()

            reading = asyncio.create_task(read())
            for n in range(3):
                await emails.send_async(str(n))
            await reading

    run(main())
    assert seen == ["0", "1", "2"]


def test_messages_are_given_back_rejected_extended_and_acked_together(emails: Queue) -> None:
    emails.send_many(["back", "away", "long", "fails", "never"])

    async def main() -> None:
        async with emails.consumer_async() as consumer:
            back, away, long, fails, never = await consumer.receive(5)
            await back.nack("1 hour", "later")
            await away.reject("not wanted")
            await long.extend("2 hours")
            with pytest.raises(ValueError):
                async with fails:
                    raise ValueError("no")
            with pytest.raises(Reject):
                async with never:
                    raise Reject("not ever")
            [again] = await consumer.receive(wait="1 minute")
            assert again.attempt == 2
            await consumer.ack([long, again])

    run(main())
    assert [letter.dead and letter.dead.reason for letter in emails.dead_letters.peek()] == ["not wanted", "not ever"]
    state = emails.state()
    assert (state.delayed, state.ready, state.lent) == (1, 0, 0)


def test_a_lost_lease_is_told(emails: Queue, leases: ManualClock) -> None:
    emails.send("x")

    async def main() -> None:
        async with emails.consumer_async(lease="10 seconds") as consumer:
            [message] = await consumer.receive()
            leases.advance(10)
            with pytest.raises(LeaseLost):
                async with message:
                    pass

    run(main())


def test_one_that_is_cancelled_while_it_waits_has_taken_nothing(emails: Queue) -> None:
    asked, may = threading.Event(), threading.Event()
    receive = emails.port.receive

    def slow(*words: Any) -> object:
        asked.set()
        assert may.wait(60)
        return receive(*words)

    emails.port.receive = slow  # type: ignore[assignment, method-assign]
    emails.send("x")

    async def main() -> None:
        async with emails.consumer_async() as consumer:
            waiting = asyncio.create_task(consumer.receive(wait="1 minute"))
            await asyncio.to_thread(asked.wait, 60)
            waiting.cancel()
            may.set()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            [message] = await consumer.receive(wait="1 minute")
            assert (message.text, message.attempt) == ("x", 1)

    run(main())


def test_leaving_gives_back_what_is_not_settled(emails: Queue) -> None:
    emails.send_many(["a", "b"])

    async def main() -> None:
        async with emails.consumer_async(name="reader") as consumer:
            assert consumer.name == "reader"
            assert isinstance((await consumer.receive())[0], AsyncReceived)

    run(main())
    assert emails.state().ready == 2


def test_a_coroutine_handles_messages_several_at_once_in_the_event_loop(emails: Queue) -> None:
    emails.send_many(str(n) for n in range(8))
    threads, busy, most = set[int](), list[str](), list[int]()

    async def main() -> None:
        together = asyncio.Event()

        async def handle(message: Received) -> None:
            threads.add(threading.get_ident())
            busy.append(message.text)
            most.append(len(busy))
            if len(busy) == 4:
                together.set()
            await together.wait()
            busy.remove(message.text)
            if message.text == "7":
                raise Reject("seven")

        assert await emails.work_async(handle, workers=4, until_empty=True) == Worked(7, 0, 1, 0)

    run(main())
    assert threads == {threading.get_ident()}
    assert max(most) == 4


def test_a_plain_function_handles_messages_too(emails: Queue) -> None:
    emails.send("x")
    seen: list[str] = []
    run(emails.work_async(lambda message: seen.append(message.text), until_empty=True))
    assert seen == ["x"]


def test_work_that_is_cancelled_finishes_what_was_begun(emails: Queue) -> None:
    emails.send_many(["a", "b"])
    done: list[str] = []

    async def main() -> None:
        begun, over = asyncio.Event(), asyncio.Event()

        async def handle(message: Received) -> None:
            begun.set()
            await over.wait()
            done.append(message.text)

        work = asyncio.create_task(emails.work_async(handle, workers=1))
        await begun.wait()
        work.cancel()
        asyncio.get_running_loop().call_later(0.01, over.set)
        with pytest.raises(asyncio.CancelledError):
            await work

    run(main())
    assert done == ["a"]
    assert [(letter.text, letter.attempt) for letter in emails.peek()] == [("b", 0)]
    assert emails.state().lent == 0
