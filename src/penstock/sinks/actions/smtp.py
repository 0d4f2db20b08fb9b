"""Sends mails over SMTP, on connections that stay open."""

import re
import smtplib
import ssl
from contextlib import suppress
from email.errors import MessageError
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from html import escape
from queue import Empty, LifoQueue

from penstock.core.time import moment
from penstock.errors import BadInput
from penstock.sinks.actions.mail import LOOPBACK, EmailDefinition, port_of, server_of
from penstock.sinks.actions.port import Intent, NotDone, Refused, Unavailable
from penstock.sinks.actions.templates import rendered, values_of
from penstock.sinks.stores.places import Password, Place

_ADDRESS = re.compile(r"[^@\s,;<>\"]+@[^@\s,;<>\"]+")


class Mail:
    """One SMTP server. As many connections as mails are under way; one that failed is not used again."""

    def __init__(self, definition: EmailDefinition) -> None:
        self._definition, self._server = definition, server_of(definition.url)
        self._port, self._host = port_of(self._server), self._server.hostname or ""
        self.called = f"email {self._host}"
        self._password = Password(definition.password, Place.of(definition.url, "SMTP server", self._port))
        self._idle: LifoQueue[smtplib.SMTP] = LifoQueue()
        self._domain = parseaddr(definition.sender)[1].rpartition("@")[2] or "penstock.invalid"

    def open(self) -> None:
        self.close()
        self._password.read()
        try:
            self._tls = ssl.create_default_context(cafile=self._definition.ca)
        except (OSError, ssl.SSLError) as error:
            raise BadInput(f"the certificates in {self._definition.ca} cannot be read: {error}") from error

    def do(self, intent: Intent) -> None:
        message = self.message(intent)
        connection = self._connection()
        try:
            refused = connection.send_message(message)
        except smtplib.SMTPRecipientsRefused as error:
            self._idle.put(connection)
            raise _judged(error.recipients, self._host) from error
        except (smtplib.SMTPException, OSError) as error:
            connection.close()
            raise self._failure(error) from error
        self._idle.put(connection)
        if refused:  # the others have it
            raise _judged(refused, self._host)

    def close(self) -> None:
        with suppress(Empty):
            while True:
                connection = self._idle.get_nowait()
                with suppress(smtplib.SMTPException, OSError):
                    connection.quit()

    def message(self, intent: Intent) -> EmailMessage:
        """The mail of a row; Refused if its texts make none."""
        definition, values = self._definition, values_of(intent)
        message = EmailMessage(SMTP)
        receivers = [str(rendered(to, values)) for to in definition.to]
        wrong = next((to for to in receivers if not _ADDRESS.fullmatch(to)), None)
        if wrong is not None:
            raise Refused(f"{wrong!a} is no address of one receiver")
        try:
            message["From"], message["To"] = definition.sender, ", ".join(receivers)
            message["Subject"] = " ".join(rendered(definition.subject, values).split())
            message["Message-ID"] = f"<{intent.key}@{self._domain}>"
            message["Date"] = format_datetime(moment(intent.time))
            message["Auto-Submitted"] = "auto-generated"
            message.set_content(rendered(definition.body, values))
            if definition.html:
                message.add_alternative(rendered(definition.html, values, escape), subtype="html")
        except (ValueError, MessageError) as error:
            raise Refused(f"the row makes no mail: {error}") from error
        return message

    def _connection(self) -> smtplib.SMTP:
        with suppress(Empty):
            return self._alive()
        try:
            return self._connected()
        except (smtplib.SMTPException, OSError) as error:
            raise self._failure(error) from error

    def _alive(self) -> smtplib.SMTP:
        """One that was used before, unless the server has closed it meanwhile."""
        while True:
            connection = self._idle.get_nowait()
            with suppress(smtplib.SMTPException, OSError):
                if connection.noop()[0] == 250:
                    return connection
            connection.close()

    def _connected(self) -> smtplib.SMTP:
        timeout, secure = self._definition.timeout.total_seconds(), self._server.scheme == "smtps"
        if secure:
            connection: smtplib.SMTP = smtplib.SMTP_SSL(self._host, self._port, timeout=timeout, context=self._tls)
        else:
            connection = smtplib.SMTP(self._host, self._port, timeout=timeout)
        try:
            connection.ehlo()
            if not secure and (self._host not in LOOPBACK or self._definition.ca):
                connection.starttls(context=self._tls)
            if self._server.username is not None and (password := self._password.read()) is not None:
                connection.login(self._server.username, password)
        except BaseException:
            connection.close()
            raise
        return connection

    def _failure(self, error: Exception) -> NotDone:
        """Whose fault it is. What the server says is told, the password hidden."""
        if isinstance(error, smtplib.SMTPResponseException):
            said = error.smtp_error.decode("utf-8", "replace") if isinstance(error.smtp_error, bytes) else str(error.smtp_error)
            reason = self._password.hidden(f"{self._host} answers {error.smtp_code}: {ascii(said)[1:-1]}")
            login = isinstance(error, smtplib.SMTPAuthenticationError)
            return Unavailable(reason) if login or error.smtp_code < 500 else Refused(reason)
        said = getattr(error, "strerror", None) or str(error)
        return Unavailable(self._password.hidden(f"{self._host} does not answer: {type(error).__name__}: {said}"))


def _judged(refused: dict[str, tuple[int, bytes]], host: str) -> NotDone:
    told = "; ".join(f"{to}: {code} {ascii(said.decode('utf-8', 'replace'))[1:-1]}" for to, (code, said) in refused.items())
    reason = f"{host} refuses {told}"
    return Refused(reason) if all(code >= 500 for code, _ in refused.values()) else NotDone(reason)
