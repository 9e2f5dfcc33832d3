"""Say what two ends that were to speak TLS did not like about each other, and what to do. Pure: texts in, text out."""

_OTHER_HOST = "its certificate is for another host, use the name or address that it holds"
_NO_TLS = "it does not speak TLS there, use another port, or a URL without the second s of rediss"
_STRANGER = "it does not trust the client's certificate, ssl_certfile in the server URL"
_SIGNS = (
    ("Hostname mismatch", _OTHER_HOST),
    ("IP address mismatch", _OTHER_HOST),
    ("certificate has expired", "its certificate has expired, renew it"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is not trusted here, name the CA's file by ssl_ca_certs in the URL"),
    ("CERTIFICATE_REQUIRED", "it wants a certificate, name one by ssl_certfile and ssl_keyfile in the server URL"),
    ("ALERT_UNKNOWN_CA", _STRANGER),
    ("ALERT_BAD_CERTIFICATE", _STRANGER),
    ("WRONG_VERSION_NUMBER", _NO_TLS),
    ("RECORD_LAYER_FAILURE", _NO_TLS),
    ("No such file or directory", "a file is missing, look at ssl_ca_certs, ssl_certfile, ssl_keyfile in the URL"),
)


def tls_trouble(text: str) -> str:
    """Say what is wrong by the text of a failed connection; '' where nothing tells that it is TLS.

    Only what no waiting ends is named: a connection cut in the middle of a handshake may be a server's that stops.
    """
    return next((trouble for sign, trouble in _SIGNS if sign in text), "")
