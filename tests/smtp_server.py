"""A mail server for tests: keeps what it is given, and says what it is told to say."""

import asyncio
import socket
import ssl
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from types import TracebackType
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword


class MailServer:
    """Listens on 127.0.0.1 inside a `with`. `mails` are all that came; `says` answers a recipient, or the mail itself ("")."""

    def __init__(self, tls: ssl.SSLContext | None = None, password: str | None = None) -> None:
        self.mails: list[EmailMessage] = []
        self.logins: list[str] = []
        self.says: dict[str, list[str]] = {}
        self._tls, self._password = tls, password
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    def once(self) -> dict[str, EmailMessage]:
        """By their Message-ID, as a mail system that honours it keeps them."""
        return {str(mail["Message-ID"]): mail for mail in self.mails}

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        said = self._next(address)
        if said is None:
            envelope.rcpt_tos.append(address)
        return said or "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        said = self._next("")
        if said is None or said.startswith("lost"):
            self.mails.append(message_from_bytes(envelope.content, policy=default))  # type: ignore[arg-type]
        return "451 lost on the way" if said and said.startswith("lost") else said or "250 OK"

    def _next(self, what: str) -> str | None:
        told = self.says.get(what)
        return told.pop(0) if told else None

    def _login(self, server: Any, session: Any, envelope: Any, mechanism: str, given: Any) -> AuthResult:
        assert isinstance(given, LoginPassword)
        self.logins.append(given.login.decode())
        return AuthResult(success=given.password.decode() == self._password, handled=False)

    def __enter__(self) -> "MailServer":
        named: dict[str, Any] = {"tls_context": self._tls, "require_starttls": True} if self._tls else {}
        if self._password:
            named |= {"authenticator": self._login, "auth_required": True}
        self._controller = _Controller(self, hostname="127.0.0.1", port=self.port, **named)
        self._controller.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._controller.cut()
        self._controller.stop()


class _Controller(Controller):
    """Closes its connections, too, when it stops."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self._made: list[Any] = []
        super().__init__(*given, **named)

    def factory(self) -> Any:
        self._made.append(super().factory())
        return self._made[-1]

    def cut(self) -> None:
        async def abort() -> None:
            for connection in self._made:
                if connection.transport is not None:
                    connection.transport.abort()
            await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(abort(), self.loop).result(30)
