"""Where a driver waits for its resident tasks: a Unix socket of its own on this machine, else the address that Spark uses.

There what is said is encrypted where Spark's connections are."""

import errno
import secrets
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.engine.execute.resident.channel import HANDSHAKE, Channel, Closed, driver_handshake
from penstock.engine.execute.resident.worker import IDLE, IDLE_ON_CLUSTER, Endpoint
from penstock.errors import EngineError

_NO_PACKAGE = "Spark's connections are encrypted, and the package cryptography is missing (pip install 'penstock[cluster]')"
PORT = "spark.penstock.resident.port"  # where the driver of a cluster listens; 0: anywhere
_PORTS = 16  # that are tried, one behind the other
LONGEST_PATH = 100  # bytes of a Unix socket's path


class Listener:
    """Takes connections of one task. A stranger gets no further than the handshake."""

    def __init__(self, place: Path | str, encrypted: bool = False, port: int = 0, idle: float = IDLE) -> None:
        """place: a directory for a Unix socket, or the address to listen at; port: or the first free one of those behind it."""
        secret, certificate = secrets.token_bytes(32), None
        self._tls: ssl.SSLContext | None = None
        self._path: Path | None = None
        if isinstance(place, Path):
            self._path = place / f"resident-{secrets.token_hex(4)}"
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.bind(str(self._path))
            address: str | tuple[str, int] = str(self._path)
        else:
            if encrypted:
                self._tls, certificate = own_certificate()
            self._socket = _first_free(place, port)
            address = (place, self._socket.getsockname()[1])
        self._socket.listen(8)
        self.endpoint = Endpoint(address, secret, certificate, idle)

    def accept(self) -> Channel | None:
        """Waits for the next that connects: a channel, or None for one that does not know the secret. Closed when we do not listen
        any more."""
        try:
            connection, _ = self._socket.accept()
        except OSError as error:
            raise Closed(str(error)) from error
        try:
            if self._tls:
                connection.settimeout(HANDSHAKE)
                connection = self._tls.wrap_socket(connection, server_side=True)
            if connection.family != socket.AF_UNIX:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return driver_handshake(connection, self.endpoint.secret)
        except (OSError, Closed):
            connection.close()
            return None

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # who waits for a connection is woken
        self._socket.close()
        if self._path:
            with suppress(OSError):
                self._path.unlink()

    def __del__(self) -> None:
        self.close()


def listener(local: bool, directory: Path, conf: Mapping[str, str]) -> Listener:
    """For tasks of this Spark. EngineError where there can be none."""
    if local and hasattr(socket, "AF_UNIX") and len(str(directory)) + len("/resident-12345678") < LONGEST_PATH:
        return Listener(directory)
    host, port = conf.get("spark.driver.host") or "127.0.0.1", int(conf.get(PORT, "0"))
    try:
        encrypted = conf.get("spark.network.crypto.enabled") == "true" and not local
        return Listener(host, encrypted, port, IDLE if local else IDLE_ON_CLUSTER)
    except OSError as error:
        raise EngineError(f"cannot listen at {host}, the driver's address: {error}") from error


def _first_free(host: str, port: int) -> socket.socket:
    for tried in range(port, port + _PORTS if port else 1):
        try:
            return socket.create_server((host, tried))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"ports {port} to {port + _PORTS - 1} are all in use")


def no_residents(conf: Mapping[str, str]) -> str | None:
    """Why a cluster with these settings can have no resident tasks, as far as it can be known before it is reached."""
    if conf.get("spark.network.crypto.enabled") == "true" and find_spec("cryptography") is None:
        return _NO_PACKAGE
    return None


def own_certificate() -> tuple[ssl.SSLContext, str]:
    """A key and a certificate for this run alone, which tasks get from Spark; and the certificate as text."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise EngineError(_NO_PACKAGE) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "penstock")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    text = certificate.public_bytes(serialization.Encoding.PEM)
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with TemporaryDirectory() as directory:  # mode 700; OpenSSL takes both from files alone
        file = Path(directory) / "own.pem"
        file.touch(0o600)
        file.write_bytes(private + text)
        context.load_cert_chain(file)
    return context, text.decode()
