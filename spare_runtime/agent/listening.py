"""Whom the agent lets in: with TLS, only who shows a certificate for callers, signed by the job's own authority."""

from __future__ import annotations

import ssl

from spare_runtime.config import BadEnvironment, Tls


def tls_context(tls: Tls | None) -> ssl.SSLContext | None:
    """The agent's side of TLS; None without it.

    OpenSSL checks that a caller's certificate is meant for callers (`clientAuth`): the agents' own, which every pod
    has, is not, so a pod cannot pose as the coordinator.

    Raises:
        BadEnvironment: the files do not hold what they should.
    """
    if tls is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(tls.ca)
        context.load_cert_chain(tls.certificate, tls.key)
    except (ssl.SSLError, OSError) as error:
        raise BadEnvironment(f"SPARE_TLS_CA, SPARE_TLS_CERT and SPARE_TLS_KEY name no usable files: {error}") from error
    return context
