"""Certificates for one run of the control plane: an authority of its own, and what it signs.

Every component and every user of the tests is a client certificate (CN the user, O its groups). So a kubeconfig for
anybody can be made at any time, without a token file that the API server would have to be restarted for.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=2)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


class Authority:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gemini-e2e")])
        certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = folder / "ca.crt"
        self.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    @property
    def bundle(self) -> str:
        """The authority's certificate as a webhook's caBundle wants it."""
        return base64.b64encode(self.certificate.read_bytes()).decode()

    def issue(self, user: str, groups: tuple[str, ...] = (), hosts: tuple[str, ...] = ()) -> Pair:
        """A pair good for clients and, with `hosts` (names or addresses), for servers. Asked again, the same pair."""
        label = "".join(c if c.isalnum() or c in "-." else "_" for c in "_".join((user, *groups, *hosts)))[:150]
        pair = Pair(self.folder / f"{label}.crt", self.folder / f"{label}.key")
        if pair.certificate.exists():
            return pair
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        names.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = self._builder(x509.Name(names), key.public_key()).add_extension(
            x509.ExtendedKeyUsage(purposes), critical=False
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_host(h) for h in hosts]), critical=False)
        pem = serialization.Encoding.PEM
        pair.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        pair.certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(pem))
        return pair

    def kubeconfig(self, path: Path, server: str, user: str, groups: tuple[str, ...] = ()) -> Path:
        pair = self.issue(user, groups)
        credentials = {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}
        return write_kubeconfig(path, server, self.certificate, credentials)

    def client_context(self, user: str, groups: tuple[str, ...] = ()) -> ssl.SSLContext:
        pair = self.issue(user, groups)
        context = ssl.create_default_context(cafile=str(self.certificate))
        context.load_cert_chain(pair.certificate, pair.key)
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + LIFETIME)
        )


def write_kubeconfig(path: Path, server: str, authority: Path, credentials: dict[str, str]) -> Path:
    """A kubeconfig (JSON is YAML) with one cluster, one user and one context."""
    text = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": "user", "user": credentials}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "user"}}],
        "current-context": "e2e",
    }
    path.write_text(json.dumps(text, indent=1))
    return path


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
