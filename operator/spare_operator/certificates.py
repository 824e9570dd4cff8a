"""Each job's own certificate authority: it signs one certificate for the agents and one for the operator, then is gone.

The authority's key is never stored, so nobody can be let in later. An agent's certificate serves only for being called,
the operator's only for calling: what a pod can read does not let it call another pod's agent.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AGENT_NAME: Final = "agent.spare.training"
"""What every agent's certificate is made out to; no pod needs a name of its own."""
OPERATOR_NAME: Final = "operator.spare.training"
LIFETIME: Final = timedelta(days=3650)
"""Longer than any job: a certificate that ran out in mid-training would be an outage of our own making."""
SKEW: Final = timedelta(days=1)
"""How far a node's clock may lag behind ours."""


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, PEM."""

    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True)
class Certificates:
    """What one job needs, PEM."""

    authority: str
    agent: Pair
    operator: Pair


def issue(job: str, now: datetime) -> Certificates:
    """Make a job's authority and what it signs. `now` is UTC."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"SPARe job {job}"[:64])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    authority = (
        _builder(name, name, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Certificates(
        authority=_pem(authority),
        agent=_leaf(AGENT_NAME, ExtendedKeyUsageOID.SERVER_AUTH, authority, key, now),
        operator=_leaf(OPERATOR_NAME, ExtendedKeyUsageOID.CLIENT_AUTH, authority, key, now),
    )


def calling_context(authority: str, operator: Pair) -> ssl.SSLContext:
    """The operator's side of TLS. The agent must show a certificate of this authority, made out to AGENT_NAME.

    Raises:
        ssl.SSLError: that is no certificate, no key, or they do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=authority)
    # The standard library reads a key from a file only: one that nobody else can open, and that is gone at once.
    descriptor, path = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(operator.certificate + operator.key)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)
    return context


def _leaf(
    name: str,
    purpose: x509.ObjectIdentifier,
    authority: x509.Certificate,
    by: ec.EllipticCurvePrivateKey,
    now: datetime,
) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(name), authority.subject, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), critical=False)
        .sign(by, hashes.SHA256())
    )
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(_pem(certificate), text.decode())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + LIFETIME)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
