"""Certificates for tests that speak TLS, made by the test run itself."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import trustme


@dataclass(frozen=True)
class Certificates:
    """One certificate for 127.0.0.1, its key, and the CA that signed it; servers and clients show the same one."""

    ca: Path
    certificate: Path
    key: Path

    @classmethod
    def make(cls, folder: Path) -> Self:
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1", "localhost")
        made = cls(folder / "ca.pem", folder / "certificate.pem", folder / "key.pem")
        authority.cert_pem.write_to_path(made.ca)
        issued.cert_chain_pems[0].write_to_path(made.certificate)
        issued.private_key_pem.write_to_path(made.key)
        return made

    def server_options(self, port: int) -> dict[str, str]:
        """Have a server speak TLS only, to clients, replicas, sentinels and other nodes, and ask who is calling."""
        return {
            "port": "0", "tls-port": str(port), "tls-replication": "yes", "tls-auth-clients": "yes",
            "tls-ca-cert-file": str(self.ca), "tls-cert-file": str(self.certificate), "tls-key-file": str(self.key),
        }  # fmt: skip

    @property
    def query(self) -> str:
        """Say in a URL how to reach such a server."""
        return urlencode({"ssl_ca_certs": self.ca, "ssl_certfile": self.certificate, "ssl_keyfile": self.key})

    @property
    def said(self) -> dict[str, Any]:
        """Say the same to redis-py."""
        return {"ssl": True, "ssl_ca_certs": self.ca, "ssl_certfile": self.certificate, "ssl_keyfile": self.key}

    @property
    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.certificate, self.key)
        return context
