"""Whose keys these are: a node signs its keys of an attempt, and the federation's authority has
signed the node's certificate. A server has neither key, so it can pass off no key as a client's."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from scafflix.core.errors import ScafflixError
from scafflix.federate.messages import RefusedError
from scafflix.federate.secure.masks import Occasion
from scafflix.federate.secure.messages import bytes_in

SIGNATURE = ec.ECDSA(hashes.SHA384())


class Identity:
    """A node's private key, its certificate, and that of the authority which signed it."""

    def __init__(self, key: Path, certificate: Path, authority: Path) -> None:
        private = serialization.load_ssh_private_key(key.read_bytes(), password=None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ScafflixError(f"{key} is not a key of scafflix deploy keys; make one with it.")
        self._private, self._certificate = private, certificate.read_text()
        self._authority = x509.load_pem_x509_certificate(authority.read_bytes())

    def signed(self, occasion: Occasion, name: str, mask: str, seal: str) -> tuple[str, str]:
        """The certificate, and a signature of keys for an attempt."""
        signature = self._private.sign(occasion.bytes_of("keys", name, mask, seal), SIGNATURE)
        return self._certificate, signature.hex()

    def check(
        self,
        occasion: Occasion,
        name: str,
        mask: str,
        seal: str,
        certificate: str,
        signature: str,
    ) -> None:
        """Refuse keys that the client of this name did not sign."""
        try:
            public = _certified(certificate, self._authority, name)
            public.verify(
                bytes_in(signature), occasion.bytes_of("keys", name, mask, seal), SIGNATURE
            )
        except (InvalidSignature, ValueError, ScafflixError):
            raise RefusedError(
                "identity",
                f"the keys of {name} are not signed by a node that the authority of this "
                "federation has certified under that name.",
            ) from None


@lru_cache(maxsize=1000)
def _certified(text: str, authority: x509.Certificate, name: str) -> ec.EllipticCurvePublicKey:
    """The public key of the node that this certificate is of."""
    certificate = x509.load_pem_x509_certificate(text.encode())
    try:
        certificate.verify_directly_issued_by(authority)
    except TypeError as error:
        raise ValueError from error
    names = certificate.subject.get_attributes_for_oid(NameOID.PSEUDONYM)
    uses = [
        use
        for extension in certificate.extensions
        if isinstance(extension.value, x509.ExtendedKeyUsage)
        for use in extension.value
    ]
    public = certificate.public_key()
    nodes = ExtendedKeyUsageOID.CLIENT_AUTH in uses  # the server has a certificate too
    if (
        not nodes
        or [one.value for one in names] != [name]
        or not isinstance(public, ec.EllipticCurvePublicKey)
    ):
        raise ValueError
    return public
