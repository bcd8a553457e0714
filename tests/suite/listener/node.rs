//! Node's https client.

use super::Https;
use crate::harness::{Origin, file_name, printed, program};

/// Asks over kept connections, over new ones that resume a session, and by `fetch`; says what it saw.
const CLIENT: &str = r"
const https = require('https'), fs = require('fs');
const [url, file] = process.argv.slice(1);
const ca = fs.readFileSync(file);
const ask = (agent, options = {}, body) => new Promise((resolve, reject) => {
  const request = https.request(url, { agent, ca, ...options }, response => {
    const { socket } = response;
    const seen = {
      status: response.statusCode, text: '',
      resumed: socket.isSessionReused(), version: socket.getProtocol(),
    };
    response.on('data', data => seen.text += data);
    response.on('end', () => resolve(seen));
  });
  request.on('error', reject);
  request.end(body);
});
(async () => {
  const seen = { statuses: {}, resumed: {} };
  const keep = new https.Agent({ keepAlive: true, maxSockets: 4 });
  for (const { status } of await Promise.all(Array.from({ length: 200 }, () => ask(keep)))) {
    seen.statuses[status] = (seen.statuses[status] ?? 0) + 1;
  }
  const upload = await ask(keep, { method: 'POST' }, Buffer.alloc(1 << 20, 'x'));
  seen.uploaded = JSON.parse(upload.text).body_bytes;
  keep.destroy();
  for (const version of ['TLSv1.2', 'TLSv1.3']) {
    const agent = new https.Agent({ minVersion: version, maxVersion: version });
    const answers = [];
    for (let round = 0; round < 3; round++) answers.push(await ask(agent));
    seen.resumed[version] = answers.map(answer => answer.version === version && answer.resumed);
  }
  seen.fetched = (await fetch(url)).status;
  seen.unknown = await ask(undefined, { servername: 'elsewhere.example' }).catch(error => error.code);
  console.log(JSON.stringify(seen));
})().catch(error => { console.error(error); process.exit(1); });
";

#[test]
fn node_keeps_connections_and_resumes_sessions() {
    let origin = Origin::echo();
    let https = Https::before(&origin);
    let authority = https.authority.file();
    let mut node = program("node", "nodejs");
    node.args(["-e", CLIENT, &https.url("/"), file_name(&authority)]);
    // What `fetch` trusts is set from outside.
    node.env("NODE_EXTRA_CA_CERTS", &authority);
    let seen: serde_json::Value = serde_json::from_str(&printed(&mut node)).unwrap();
    assert_eq!(seen["statuses"], serde_json::json!({ "200": 200 }), "{seen}");
    assert_eq!(seen["uploaded"], 1 << 20, "{seen}");
    let resumed = serde_json::json!([false, true, true]);
    assert_eq!([&seen["resumed"]["TLSv1.2"], &seen["resumed"]["TLSv1.3"]], [&resumed, &resumed], "{seen}");
    let handshakes = |resumed| https.handshakes("1.2", resumed) + https.handshakes("1.3", resumed);
    // Four sockets for 201 requests; six for sessions, of which four were resumed; `fetch`. Of the handshake with the
    // unknown name, the server may see the end or not.
    assert_eq!(handshakes(true), 4.0);
    assert!([7.0, 8.0].contains(&handshakes(false)), "{}", handshakes(false));
    assert_eq!(seen["fetched"], 200, "{seen}");
    assert_eq!(seen["unknown"], "ERR_TLS_CERT_ALTNAME_INVALID", "{seen}");
}
