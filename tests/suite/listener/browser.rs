//! Chromium over https.

use std::fs;

use base64::{Engine, prelude::BASE64_STANDARD};
use rcgen::{KeyPair, PublicKeyData};
use sha2::{Digest, Sha256};

use super::Https;
use crate::harness::{Browser, Issued, Origin};

/// Asks for more, sends something, and says how it went.
const PAGE: &str = r"<!DOCTYPE html><title>https</title><p id=state>waiting</p><script>
(async () => {
  const asked = await Promise.all(Array.from({ length: 30 }, (_, number) => fetch('/data/' + number)));
  const sent = await fetch('/upload', { method: 'POST', body: new Uint8Array(1 << 20) });
  const [page] = performance.getEntriesByType('navigation');
  document.getElementById('state').textContent = [
    'answers', asked.filter(answer => answer.ok).length, 'sent', await sent.text(),
    isSecureContext ? 'secure' : 'insecure', page.nextHopProtocol,
  ].join(' ');
})().catch(error => { document.getElementById('state').textContent = 'failed: ' + error; });
</script>";

/// What Chromium calls a key: the digest of its public part.
pub fn key_digest(issued: &Issued) -> String {
    let key = KeyPair::from_pem(&fs::read_to_string(&issued.key).unwrap()).unwrap();
    BASE64_STANDARD.encode(Sha256::digest(key.subject_public_key_info()))
}

/// The argument by which Chromium trusts a certificate.
pub(super) fn trusting(issued: &Issued) -> String {
    format!("--ignore-certificate-errors-spki-list={}", key_digest(issued))
}

#[test]
fn chromium_loads_a_page_over_kept_connections() {
    let origin = Origin::start(|conn| {
        while let Some(head) = conn.head()? {
            let (body, _) = conn.body(&head)?;
            if head.starts_with("GET / ") {
                conn.answer("200 OK", &[("content-type", "text/html")], PAGE.as_bytes())?;
            } else {
                conn.answer("200 OK", &[], body.len().to_string().as_bytes())?;
            }
        }
        Ok(())
    });
    let https = Https::before(&origin);
    let url = https.url("");
    let browser = Browser::open_at(&url, "/", &[&trusting(&https.certificate)]);
    browser.shows("#state", "answers 30 sent 1048576 secure h2");
    let handshakes = ["no", "yes"].map(|resumed| https.handshakes("1.3", resumed == "yes"));
    eprintln!("{handshakes:?} handshakes, whole and resumed");
    // One is enough for HTTP/2; others may have been begun in advance.
    assert!(handshakes.iter().sum::<f64>() <= 4.0, "{handshakes:?}");
}
