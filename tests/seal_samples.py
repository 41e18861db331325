"""Real makers of seals for tests: ssh keys, a time-stamping authority and a calendar, both on loopback."""

from __future__ import annotations

import hashlib
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from prereg_samples import AT, PIN, house_with

from ablate.api import StudyContext
from prereg.registry.paths import Root
from prereg.registry.register import register
from prereg.registry.registration import Pins, Registration

# OpenSSL 3.0 writes two certificate hashes into a reply where `certs` is configured, and strict readers refuse that.
CONFIG = """\
[tsa]
default_tsa = authority
[authority]
serial = {folder}/serial
signer_cert = {folder}/tsa.pem
signer_key = {folder}/tsa.key
signer_digest = sha256
default_policy = 1.3.6.1.4.1.99999.1
digests = {digests}
accuracy = secs:1
"""
EXTENSIONS = """\
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = critical, timeStamping
"""


def ssh_key(folder: Path, name: str = "key", *, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A new key pair; the path of its private half."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    words = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "", "-f", str(path)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return path


def allow(key: Path, signers: Path, *, who: str = "ada@example.org", options: str = "") -> None:
    """Vouch for a key."""
    public = key.with_name(f"{key.name}.pub").read_text().split()
    signers.write_text(" ".join(word for word in (who, options, *public[:2]) if word) + "\n")


def git(folder: Path, *words: str) -> str:
    """Run git as a user of its own."""
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def registered(tmp_path: Path) -> tuple[StudyContext, Registration]:
    """A registered study in a root of its own."""
    root, loaded = house_with(tmp_path)
    registration, _ = register(root, loaded, pins=Pins(corpus=PIN), design=None, tool={"ablate": "test"}, at=AT)
    return StudyContext(loaded.path, root, loaded), registration


def snapshot(root: Root) -> dict[str, bytes]:
    """Every file and its bytes, git's own left out."""
    files = (path for path in root.path.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {path.relative_to(root.path).as_posix(): path.read_bytes() for path in files}


class Authority:
    """A time-stamping authority made by `openssl ts`, with a root of its own."""

    def __init__(self, folder: Path, name: str = "Test Authority") -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.roots = folder / "root.pem"
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        self._openssl("req", "-x509", *key, "-keyout", "root.key", "-out", "root.pem", "-days", "30",
                      "-subj", f"/CN={name} Root", "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
        self._openssl("req", *key, "-keyout", "tsa.key", "-out", "tsa.csr", "-subj", f"/CN={name}")
        (folder / "extensions").write_text(EXTENSIONS)
        self._openssl("x509", "-req", "-in", "tsa.csr", "-CA", "root.pem", "-CAkey", "root.key", "-CAcreateserial",
                      "-out", "tsa.pem", "-days", "20", "-extfile", "extensions")  # fmt: skip
        (folder / "serial").write_text("01")
        for file, digests in (("tsa.cnf", "sha256"), ("refuses.cnf", "sha1")):
            (folder / file).write_text(CONFIG.format(folder=folder, digests=digests))

    def reply(self, question: bytes, config: str = "tsa.cnf") -> bytes:
        """The answer to a request."""
        (self.folder / "question").write_bytes(question)
        self._openssl("ts", "-reply", "-config", config, "-queryfile", "question", "-out", "reply")
        return (self.folder / "reply").read_bytes()

    def _openssl(self, *words: str) -> None:
        done = subprocess.run(["openssl", *words], cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


class Server:
    """Something that answers on loopback, in a way that a test may change."""

    def __init__(self, authority: Authority | None = None) -> None:
        self.authority = authority
        self.mood = "good"
        self.kept: bytes | None = None
        self.questions: list[tuple[str, bytes]] = []
        self.block: int | None = None
        self.address = ""

    def answer(self, path: str, question: bytes) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers."""
        self.questions.append((path, question))
        odd: dict[str, tuple[int, bytes, dict[str, str]]] = {
            "elsewhere": (302, b"", {"Location": "http://127.0.0.1:1/other"}),
            "huge": (200, b"x" * 1_000_000, {}),
            "page": (200, b"<html>hello</html>", {}),
        }
        if self.mood in odd:
            return odd[self.mood]
        if self.mood.isdigit():
            return int(self.mood), b"no", {}
        if path.startswith(("/digest", "/timestamp")):
            return self._calendar(path, question)
        assert self.authority is not None
        if self.mood == "replay" and self.kept is not None:
            return 200, self.kept, {}
        self.kept = self.authority.reply(question, "refuses.cnf" if self.mood == "refuses" else "tsa.cnf")
        return 200, self.kept, {"Content-Type": "application/timestamp-reply"}

    def _calendar(self, path: str, question: bytes) -> tuple[int, bytes, dict[str, str]]:
        """What an OpenTimestamps calendar says: a promise first, the way to a block once there is one."""
        from opentimestamps.core.notary import BitcoinBlockHeaderAttestation, PendingAttestation
        from opentimestamps.core.op import OpAppend, OpSHA256
        from opentimestamps.core.serialize import BytesSerializationContext
        from opentimestamps.core.timestamp import Timestamp

        if path == "/digest":
            stamp = Timestamp(question)
            promised = stamp.ops.add(OpAppend(b"a neighbour in the tree")).ops.add(OpSHA256())
            promised.attestations.add(PendingAttestation(self.address))
        elif self.block is None:
            return 404, b"Pending confirmation", {}
        else:
            stamp = Timestamp(bytes.fromhex(path.removeprefix("/timestamp/")))
            stamp.ops.add(OpAppend(b"the other side")).ops.add(OpSHA256()).attestations.add(
                BitcoinBlockHeaderAttestation(self.block)
            )
        context = BytesSerializationContext()
        stamp.serialize(context)
        return 200, context.getbytes(), {}


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Let a server answer on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

        def do_GET(self) -> None:
            self._answer(b"")

        def _answer(self, question: bytes) -> None:
            status, body, headers = server.answer(self.path, question)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) + (server.mood == "cut")))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                if server.mood == "drip":
                    for byte in body[:40]:
                        self.wfile.write(bytes([byte]))
                        self.wfile.flush()
                        time.sleep(0.1)
                else:
                    self.wfile.write(body)
            except OSError:
                pass  # the asker had enough

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.address = f"http://127.0.0.1:{httpd.server_port}"
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


def merkle_root(lock_sha256: str) -> str:
    """Where the test calendar's path from a lock ends, computed here: as block explorers print it."""
    promised = hashlib.sha256(bytes.fromhex(lock_sha256) + b"a neighbour in the tree").digest()
    return hashlib.sha256(promised + b"the other side").digest()[::-1].hex()
