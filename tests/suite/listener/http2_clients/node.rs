//! Node's http2 module.

use super::{AT_ONCE, Served, check};
use crate::harness::{file_name, printed, program};

/// A session that is told to go away serves what is under way; the next request begins another.
const CLIENT: &str = r"
const http2 = require('http2'), fs = require('fs'), { createHash } = require('crypto');
const [url, file, atOnce] = process.argv.slice(1);
const ca = fs.readFileSync(file);
const seen = { sessions: 0 };
let session;
const connected = () => {
  if (!session || session.closed || session.destroyed) {
    seen.sessions++;
    session = http2.connect(url, { ca });
    session.on('error', error => { console.error(error); process.exit(1); });
  }
  return session;
};
const ask = (path, headers = {}, body) => new Promise((resolve, reject) => {
  const stream = connected().request({ ':path': path, ...headers });
  const answer = { headers: undefined, trailers: undefined };
  const pieces = [];
  stream.on('response', headers => answer.headers = headers);
  stream.on('trailers', trailers => answer.trailers = trailers);
  stream.on('data', piece => pieces.push(piece));
  stream.on('error', reject);
  stream.on('close', () => resolve({ ...answer, body: Buffer.concat(pieces) }));
  stream.end(body);
});
(async () => {
  const download = await ask('/download');
  seen.download = createHash('sha256').update(download.body).digest('hex');
  seen.upload = (await ask('/upload', { ':method': 'POST' }, download.body)).body.toString();
  const answers = await Promise.all(Array.from({ length: atOnce }, (_, number) => ask('/number/' + number)));
  seen.numbers = answers.filter((answer, number) => answer.body.toString() === String(number)).length;
  let denied;
  for (let round = 0; round < 3; round++) denied = await ask('/limited');
  seen.denied = {
    status: denied.headers[':status'], type: denied.headers['content-type'], body: JSON.parse(denied.body),
    retry_after: denied.headers['retry-after'], ratelimit: denied.headers['ratelimit'],
  };
  const trailers = await ask('/trailers', { te: 'trailers' });
  seen.trailers = [trailers.body.toString(), trailers.trailers['x-checksum']];
  // Others come and go all the while. What the session has not sent yet when it is told to go away, it refuses by itself.
  let isHeld = true;
  const again = async path => {
    for (;;) {
      try {
        return await ask(path);
      } catch (error) {
        if (!error.message.endsWith('NGHTTP2_REFUSED_STREAM')) throw error;
      }
    }
  };
  const others = Array.from({ length: 8 }, async () => {
    let answers = 0;
    for (; isHeld; answers++) {
      const status = (await again('/other')).headers[':status'];
      if (status !== 200) throw status;
    }
    return answers;
  });
  seen.held = (await ask('/held')).body.toString();
  isHeld = false;
  seen.others = (await Promise.all(others)).reduce((sum, answers) => sum + answers);
  seen.after = 0;
  for (let number = 0; number < 50; number++) {
    seen.after += (await ask('/number/' + number)).body.toString() === String(number);
  }
  session.close();
  console.log(JSON.stringify(seen));
})().catch(error => { console.error(error); process.exit(1); });
";

#[test]
fn node_is_served() {
    let mut served = Served::start();
    let seen = served.hand_over_during(|served| {
        let (authority, at_once) = (served.authority.file(), AT_ONCE.to_string());
        let arguments = ["-e", CLIENT, &served.url(""), file_name(&authority), &at_once];
        printed(program("node", "nodejs").args(arguments))
    });
    let seen = serde_json::from_str(&seen).unwrap();
    check(&served, &seen);
    assert_eq!(seen["trailers"], serde_json::json!(["hello", "5d41402a"]));
    assert!(seen["others"].as_u64().unwrap() > 8, "{seen}");
    assert_eq!(seen["sessions"], 2, "one with each process: {seen}");
}
