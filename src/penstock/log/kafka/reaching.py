"""The first word with a broker, and why there was none: nobody there, a wrong password, TLS or SASL on one side only."""

import re
import time
from collections import deque
from typing import Any

from penstock.errors import Unreachable

FIRST = 10.0  # seconds for a broker's first answer to this process
_SURE = 1.5  # seconds after which a refused password, or a closed connection, is taken for what it is
_STARTING = 5.0  # seconds in which somebody may begin to listen
_TRY = 0.5
_AFTER = re.compile(r" \(after \d+ms in state \w+.*\)$")
_WAITING = "a live run goes on by itself when it answers; what was not acknowledged can be sent again"


class Contact:
    """What the client of one connection has heard from its broker: whether it ever answered, and what goes wrong since."""

    def __init__(self, servers: tuple[str, ...], security: str) -> None:
        self.servers, self.security = ",".join(servers), security
        self.met, self.troubled = False, False
        self._heard: deque[tuple[str, str]] = deque(maxlen=32)  # name and text of errors, the newest last

    def hear(self, error: Any) -> None:
        """The client's callback for errors of its connections."""
        self._heard.append((error.name(), _AFTER.sub("", error.str())))

    def greet(self, client: Any, failure: type[Exception]) -> None:
        """Returns once the broker has answered; Unreachable, with the reason, if it does not. failure: what the client raises."""
        began = time.monotonic()
        while not self.met:
            try:
                client.list_topics(timeout=_TRY)
                self.answered()
            except failure:
                client.poll(0)
                passed = time.monotonic() - began
                if passed > self._enough():
                    raise self.unreachable("it did not answer") from None
                time.sleep(0.05)

    def answered(self) -> None:
        self.met, self.troubled = True, False
        self._heard.clear()

    def unreachable(self, why: str) -> Unreachable:
        """The error, with the cause as far as the client knows it. why: what else is known."""
        self.troubled = True
        name, text = self._last()
        cause, hint = self._cause(name, text)
        detail = [line for line in (cause or why, text if cause and text else "") if line]
        return Unreachable(f"Kafka at {self.servers} cannot be used", *detail, hint=hint or _WAITING)

    def _last(self) -> tuple[str, str]:
        """The error that says most: the last one with a cause; else that all connections were lost."""
        telling = [(name, text) for name, text in self._heard if name != "_ALL_BROKERS_DOWN"]
        return (telling or [*self._heard] or [("", "")])[-1]

    def _enough(self) -> float:
        """Seconds after which what was heard last is believed."""
        name, text = self._last()
        if name in ("_AUTHENTICATION", "_SSL", "_ALL_BROKERS_DOWN") or "SSL handshake" in text:
            return _SURE
        return _STARTING if name == "_RESOLVE" or "Connection refused" in text else FIRST

    def _cause(self, name: str, text: str) -> tuple[str, str]:
        if name == "_AUTHENTICATION":
            return "the broker refuses user and password", "look at user=, sasl= and the secret that password= names"
        if "SSL handshake" in text or name == "_SSL":
            if "PLAINTEXT" in text or "Disconnected" in text or "wrong version number" in text:
                return (
                    "the broker closed the TLS handshake: this port may speak no TLS",
                    f"security={self.security} wants another port",
                )
            return "TLS could not be agreed upon", "look at ca=, cert= and key=, and at the name in the broker's certificate"
        if "Connection refused" in text:
            return "nobody listens there", "start the broker, or look at host and port"
        if name == "_RESOLVE":
            return "the name of the host is not known", "look at the address"
        if name == "_ALL_BROKERS_DOWN" and not self.met:
            wanted = "security=sasl_tls, sasl_plaintext or tls" if self.security == "plaintext" else "another security="
            return (
                f"the broker closed the connection: it may want {wanted}",
                "ask the broker's operator which port speaks which protocol",
            )
        return "", ""
