//! Chromium, whose `fetch` uses HTTP/2 by itself.

use super::{AT_ONCE, Served, check};
use crate::{
    harness::{Browser, eventually},
    listener::browser::key_digest,
};

/// Does everything, and shows what it saw.
const PAGE: &str = r"<!DOCTYPE html><title>http2</title><p id=state>waiting</p><script>
(async () => {
  const seen = {};
  const hex = buffer => Array.from(new Uint8Array(buffer), byte => byte.toString(16).padStart(2, '0')).join('');
  const download = await (await fetch('/download')).arrayBuffer();
  seen.download = hex(await crypto.subtle.digest('SHA-256', download));
  seen.upload = await (await fetch('/upload', { method: 'POST', body: download })).text();
  const answers = await Promise.all(
    Array.from({ length: AT_ONCE }, async (_, number) => (await fetch('/number/' + number)).text()));
  seen.numbers = answers.filter((answer, number) => answer === String(number)).length;
  let denied;
  for (let round = 0; round < 3; round++) denied = await fetch('/limited', { cache: 'no-store' });
  const field = name => denied.headers.get(name);
  seen.denied = {
    status: denied.status, type: field('content-type'), body: await denied.json(),
    retry_after: field('retry-after'), ratelimit: field('ratelimit'),
  };
  seen.trailers = await (await fetch('/trailers')).text();
  // Others come and go all the while.
  let isHeld = true;
  const others = Array.from({ length: 8 }, async () => {
    let answers = 0;
    for (; isHeld; answers++) {
      // Chromium fails what it has begun on a connection in the instant in which GOAWAY comes (net::ERR_FAILED), unsent.
      const ask = () => fetch('/other', { cache: 'no-store' });
      const answer = await ask().catch(ask);
      if (!answer.ok) throw answer.status;
      await answer.text();
    }
    return answers;
  });
  seen.held = await (await fetch('/held')).text();
  isHeld = false;
  seen.others = (await Promise.all(others)).reduce((sum, answers) => sum + answers);
  seen.after = 0;
  for (let number = 0; number < 50; number++) {
    seen.after += await (await fetch('/number/' + number, { cache: 'no-store' })).text() === String(number);
  }
  const [page] = performance.getEntriesByType('navigation');
  seen.protocol = page.nextHopProtocol;
  document.getElementById('state').textContent = JSON.stringify(seen);
})().catch(error => { document.getElementById('state').textContent = 'failed: ' + error; });
</script>";

#[test]
fn chromium_is_served() {
    let page = PAGE.replace("AT_ONCE", &AT_ONCE.to_string());
    let mut served = Served::with_page(&page);
    let seen = served.hand_over_during(|served| {
        let trusted = format!("--ignore-certificate-errors-spki-list={}", key_digest(&served.certificate));
        let browser = Browser::open_at(&served.url(""), "/page", &[&trusted]);
        eventually("it has seen everything", || browser.text("#state") != "waiting");
        browser.text("#state")
    });
    let seen = serde_json::from_str(&seen).unwrap_or_else(|_| panic!("{seen}"));
    check(&served, &seen);
    assert!(seen["others"].as_u64().unwrap() > 8, "{seen}");
    assert_eq!((&seen["trailers"], &seen["protocol"]), (&"hello".into(), &"h2".into()));
}
