//! Python's clients: requests, httpx, and tlslite-ng, a TLS of its own.

use super::Https;
use crate::harness::{Origin, file_name, python};

/// One session of each library; the versions, and how they fail without trust.
const REQUESTS: &str = r#"
import asyncio, ssl, sys
import httpx, requests

url, ca = sys.argv[1:]
megabyte = b"x" * (1 << 20)

with requests.Session() as session:
    session.verify, session.trust_env = ca, False
    for number in range(10):
        assert session.get(f"{url}{number}").json()["target"] == f"/{number}"
    assert session.post(url, data=megabyte).json()["body_bytes"] == 1 << 20
    assert session.post(url, data=iter([megabyte] * 3)).json()["body_bytes"] == 3 << 20
try:
    requests.get(url, verify=True)
    raise SystemExit("requests trusts anybody")
except requests.exceptions.SSLError:
    pass

context = ssl.create_default_context(cafile=ca)
# What Python 3.13 does by itself.
context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
with httpx.Client(verify=context, trust_env=False) as client:
    for number in range(10):
        assert client.get(f"{url}{number}").json()["target"] == f"/{number}"
    assert client.post(url, content=megabyte).json()["body_bytes"] == 1 << 20

async def at_once():
    limits = httpx.Limits(max_connections=8)
    async with httpx.AsyncClient(verify=context, trust_env=False, limits=limits) as client:
        answers = await asyncio.gather(*(client.get(f"{url}{number}") for number in range(200)))
        assert [answer.json()["target"] for answer in answers] == [f"/{number}" for number in range(200)]

asyncio.run(at_once())
print("requests", requests.__version__, "httpx", httpx.__version__, "OpenSSL", ssl.OPENSSL_VERSION)
"#;

/// Handshakes of either version, whole and resumed, with every suite and group alone, and in tiny records.
const TLSLITE: &str = r#"
import socket, sys
from tlslite.api import HandshakeSettings, TLSConnection
from tlslite.errors import TLSRemoteAlert
import tlslite

port = int(sys.argv[1])
REQUEST = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"

def settings(version, **more):
    it = HandshakeSettings()
    it.minVersion = it.maxVersion = version
    for name, value in more.items():
        setattr(it, name, value)
    return it

def ask(settings, session=None, record=None):
    sock = socket.create_connection(("127.0.0.1", port), 10)
    tls = TLSConnection(sock)
    # Else it takes an end without close_notify for an end.
    tls.ignoreAbruptClose = False
    tls.handshakeClientCert(settings=settings, serverName="localhost", session=session)
    tls.seen = tls.resumed, tls.version
    if record:
        tls.recordSize = record
    tls.sendall(REQUEST)
    answer = b""
    while piece := tls.recv(1 << 14):
        answer += piece
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    tls.close()
    return tls

def refused(settings):
    try:
        ask(settings)
    except TLSRemoteAlert:
        return True
    return False

names = {(3, 3): "1.2", (3, 4): "1.3"}
for version, name in names.items():
    first = ask(settings(version))
    assert first.seen == (False, version), first.seen
    again = ask(settings(version), first.session)
    assert again.seen == (True, version), again.seen
    for cipher in ["aes256gcm", "aes128gcm", "chacha20-poly1305"]:
        ask(settings(version, cipherNames=[cipher]))
    for cipher in ["aes256", "aes128", "aes128ccm", "aes256ccm_8", "3des"]:
        assert refused(settings(version, cipherNames=[cipher])), cipher
    for group in ["x25519", "secp256r1", "secp384r1"]:
        # Its own certificate's group is wanted, too.
        ask(settings(version, eccCurves=[group, "secp256r1"], keyShares=[group], dhGroups=[]))
    for group in ["secp521r1", "x448"]:
        assert refused(settings(version, eccCurves=[group], keyShares=[group], dhGroups=[])), group
    # A HelloRetryRequest: the share that is sent is of none of the groups that are served.
    if version == (3, 4):
        ask(settings(version, eccCurves=["secp521r1", "secp256r1"], keyShares=["secp521r1"], dhGroups=[]))
    for size in [1, 2, 63]:
        ask(settings(version), record=size)
for version in [(3, 0), (3, 1), (3, 2)]:
    assert refused(settings(version)), version
print("tlslite-ng", tlslite.__version__)
"#;

#[test]
fn requests_and_httpx_keep_their_connections() {
    let origin = Origin::echo();
    let https = Https::before(&origin);
    let (url, authority) = (https.url("/"), https.authority.file());
    let Some(said) = python(REQUESTS, &[&url, file_name(&authority)]) else { return };
    eprint!("{said}");
    let handshakes = https.handshakes("1.3", false) + https.handshakes("1.3", true);
    // Ten connections, and some that were begun and not needed on a busy machine; 224 requests.
    assert!(handshakes <= 20.0, "{handshakes} handshakes for ten connections");
    // It closed the connection once it saw the certificate.
    https.has_failed("refused_certificate", 1.0);
}

#[test]
fn tlslite_agrees_on_what_is_served_and_on_nothing_else() {
    let origin = Origin::ok();
    let https = Https::before(&origin);
    let port = https.address().port().to_string();
    let Some(said) = python(TLSLITE, &[&port]) else { return };
    eprint!("{said}");
}
