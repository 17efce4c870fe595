"""TLS certificates and node keys for your own federation.

`authority.key` signs certificates and stays with the operator. `ca.crt` goes to every node, and
`server.crt` and `server.key` go to the server. Each node's private key goes to that node only; its
public key goes to the server, which recognizes the node by it. Its certificate goes to that node,
too: with secure aggregation, the other nodes recognize it by that.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from scafflix.core import durable, private
from scafflix.core.errors import ScafflixError
from scafflix.federate.messages import checked_name

DAYS = 365
LOOPBACK = ("localhost", "127.0.0.1")


def make_certificates(folder: Path, hosts: Sequence[str], days: int = DAYS) -> Path:
    """Make a new certificate authority, and a server certificate for these host names.

    The certificate is also valid on the server's own machine, where jobs are submitted.
    """
    if not hosts:
        raise ScafflixError("hosts is empty; give at least one name or address of the server.")
    durable.new_folder(folder)
    _refuse_to_replace(folder / "ca.crt")
    authority, server = ec.generate_private_key(ec.SECP384R1()), _new_key()
    issuer = _name("scafflix authority")
    root = _certificate(issuer, issuer, authority.public_key(), days)
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    root = root.add_extension(usage, critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    root = root.add_extension(identifier, critical=False)
    mine = _certificate(_name(hosts[0]), issuer, server.public_key(), days)
    names = x509.SubjectAlternativeName(_hosts([*hosts, *LOOPBACK]))
    mine = mine.add_extension(names, critical=False)
    mine = mine.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    known = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    mine = mine.add_extension(known, critical=False)
    purpose = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
    mine = mine.add_extension(purpose, critical=False)
    for name, builder in (("ca", root), ("server", mine)):
        signed = builder.sign(authority, hashes.SHA384())
        (folder / f"{name}.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    _write_key(folder / "authority.key", authority, serialization.PrivateFormat.PKCS8)
    _write_key(folder / "server.key", server, serialization.PrivateFormat.PKCS8)
    return folder


def make_node_key(folder: Path, name: str) -> Path:
    """Make a node's private key; the public key is next to it, with the suffix `.pub`, and its
    certificate, with the suffix `.crt`, if the authority is in the folder."""
    path = durable.new_folder(folder) / checked_name(name)
    _refuse_to_replace(path)
    _refuse_to_replace(path.with_name(f"{name}.crt"))  # a client may be called ca
    key = _new_key()
    _write_key(path, key, serialization.PrivateFormat.OpenSSH)
    ssh = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.with_name(f"{path.name}.pub").write_bytes(key.public_key().public_bytes(*ssh) + b"\n")
    if (folder / "authority.key").exists():
        _certify(folder, name, key.public_key())
    return path


def _certify(folder: Path, name: str, key: ec.EllipticCurvePublicKey, days: int = DAYS) -> None:
    """Have the authority sign that this is the key of the node of this name."""
    root = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    authority = serialization.load_pem_private_key((folder / "authority.key").read_bytes(), None)
    assert isinstance(authority, ec.EllipticCurvePrivateKey)
    whole = x509.NameAttribute(NameOID.PSEUDONYM, name)  # which may be longer than a common name
    made = _certificate(x509.Name([*_name(name), whole]), root.subject, key, days)
    made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    purpose = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH])
    signed = made.add_extension(purpose, critical=False).sign(authority, hashes.SHA384())
    path = folder / f"{name}.crt"
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _refuse_to_replace(path: Path) -> None:
    if path.exists():
        raise ScafflixError(
            f"{path} already exists; choose another folder, or remove it if nobody uses it."
        )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _hosts(names: Sequence[str]) -> list[x509.GeneralName]:
    made: list[x509.GeneralName] = []
    for name in dict.fromkeys(names):
        try:
            made.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            made.append(x509.DNSName(name))
    return made


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _write_key(
    path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat
) -> None:
    """Write a key that only its owner can read."""
    content = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    with private.open_file(path, "xb") as file:
        file.write(content)
