//! WebSockets by clients and servers that others wrote: Python's `websockets`, Node's `ws`, and Chromium, each over
//! HTTP/1.1, TLS and, in Chromium, HTTP/2.

use std::{
    env,
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Command, Stdio},
};

use super::{browser::trusting, pair};
use crate::harness::{
    Authority, Browser, Config, Origin, Running, Tollgate, becomes, file_name, printed, program,
};

/// A server of `websockets`, which sends back what comes. It agrees to compression if it is asked to.
const SERVER: &str = r#"
import asyncio
from websockets.asyncio.server import serve

async def echo(socket):
    async for message in socket:
        await socket.send(message)

async def main():
    async with serve(echo, "127.0.0.1", 0, max_size=None, subprotocols=["chat"]) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.wait_closed()

asyncio.run(main())
"#;

const CLIENT: &str = r#"
import asyncio, os, ssl, sys, time
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
import websockets

url, ca = sys.argv[1:]
context = ssl.create_default_context(cafile=ca) if url.startswith("wss") else None

async def converse(compression):
    async with connect(url, ssl=context, max_size=None, compression=compression, subprotocols=["chat"]) as socket:
        assert socket.subprotocol == "chat"
        agreed = socket.response.headers.get("sec-websocket-extensions")
        assert (agreed is not None) == (compression is not None), agreed
        for text in ["", "h\u00e9llo", "x" * 125, "x" * 126, "x" * 65535, "x" * 65536]:
            await socket.send(text)
            assert await socket.recv() == text
        # 16 MiB of what can't be compressed.
        random = os.urandom(16 << 20)
        sending = asyncio.create_task(socket.send(random))
        assert await socket.recv() == random
        await sending
        # In fragments, with a ping between them.
        async def fragments():
            for number in range(50):
                yield bytes([number]) * 1000
                if number % 10 == 0:
                    await (await socket.ping())
        await socket.send(fragments())
        assert await socket.recv() == b"".join(bytes([number]) * 1000 for number in range(50))
        await (await socket.ping(b"are you there"))
    assert socket.close_code == 1000, socket.close_code

async def main():
    await converse(None)
    await converse("deflate")
    await asyncio.gather(*(many(number) for number in range(100)))
    print("websockets", websockets.__version__)

async def many(number):
    async with connect(url, ssl=context, subprotocols=["chat"]) as socket:
        for turn in range(10):
            await socket.send(f"{number} {turn}")
            assert await socket.recv() == f"{number} {turn}"

asyncio.run(main())
"#;

const NODE: &str = r"
const WebSocket = require(process.argv[1] + '/ws'), { readFileSync } = require('fs'), { randomBytes } = require('crypto');
const [, , url, ca] = process.argv;
const converse = perMessageDeflate => new Promise((resolve, reject) => {
  const socket = new WebSocket(url, 'chat', { ca: readFileSync(ca), perMessageDeflate, maxPayload: 1 << 25 });
  const big = randomBytes(16 << 20);
  const seen = { extensions: '', pong: '', echoed: [] };
  socket.on('error', reject);
  socket.on('open', () => {
    seen.extensions = socket.extensions;
    socket.ping('are you there');
    socket.send('frag', { fin: false });
    socket.ping('between');
    socket.send('ments', { fin: true });
    socket.send(big);
  });
  socket.on('pong', data => seen.pong += data);
  socket.on('message', (data, isBinary) => {
    seen.echoed.push(isBinary ? data.equals(big) : String(data));
    if (seen.echoed.length === 2) socket.close(4000, 'enough');
  });
  socket.on('close', code => resolve({ ...seen, code }));
});
(async () => console.log(JSON.stringify([await converse(false), await converse(true)])))()
  .catch(error => { console.error(error); process.exit(1); });
";

/// Opens a WebSocket, says how it went, and what the page itself came by.
const PAGE: &str = r"<!DOCTYPE html><title>websocket</title><p id=state>waiting</p><script>
const socket = new WebSocket(location.origin.replace('http', 'ws') + '/socket', 'chat');
const state = document.getElementById('state');
const big = new Uint8Array(16 << 20).map((_, index) => index * 7919 >> 3);
let echoed = 0;
socket.binaryType = 'arraybuffer';
socket.onopen = () => { socket.send('hello'); socket.send(big); };
socket.onmessage = ({ data }) => {
  echoed += typeof data === 'string' ? Number(data === 'hello')
    : Number(data.byteLength === big.length && new Uint8Array(data).every((byte, index) => byte === big[index]));
  if (echoed === 2) {
    const [page] = performance.getEntriesByType('navigation');
    state.textContent = ['echoed', socket.protocol, socket.extensions.split(';')[0], page.nextHopProtocol].join(' ');
  }
};
socket.onclose = ({ code, wasClean }) => state.textContent += ' closed ' + code + ' ' + wasClean;
socket.onerror = () => state.textContent = 'failed';
</script>";

/// A running server of `websockets`, and where `scripts/test` has installed Python's clients. None: it has not.
fn server() -> Option<(Running, SocketAddr, String)> {
    let Ok(directory) = env::var("PYTHON_CLIENTS") else {
        eprintln!("left out: `scripts/test` installs Python's clients and says where in PYTHON_CLIENTS");
        return None;
    };
    let mut python: Command = program("python3", "python3");
    python.env("PYTHONPATH", &directory).args(["-c", SERVER]).stdout(Stdio::piped());
    let mut child = python.spawn().unwrap();
    let mut port = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port.trim().parse().unwrap()));
    Some((Running(child), address, directory))
}

/// Tollgates before `server`, over HTTP/1.1 and over TLS: each with the URL of its WebSockets.
fn tollgates(server: SocketAddr, authority: &Authority) -> [(Tollgate, String); 2] {
    let certificate = authority.issue("server", &["localhost"]);
    let tls = format!(
        "listeners: [{{ address: \"127.0.0.1:0\", tls: {{ certificates: [{}] }} }}]\n",
        pair(&certificate)
    );
    [("ws", ""), ("wss", &tls)].map(|(scheme, rest)| {
        let tollgate = Tollgate::start(Config::new(&[server], rest));
        let url = format!("{scheme}://localhost:{}/socket", tollgate.address.port());
        (tollgate, url)
    })
}

#[test]
fn websockets_of_python_pass_whatever_they_hold() {
    let Some((_server, address, directory)) = server() else { return };
    let authority = Authority::new("Authority of the tests");
    for (tollgate, url) in &tollgates(address, &authority) {
        let mut python = program("python3", "python3");
        python.env("PYTHONPATH", &directory).args(["-c", CLIENT, url, file_name(&authority.file())]);
        eprint!("{url}: {}", printed(&mut python));
        crate::harness::eventually("all tunnels are gone", || {
            tollgate.metric("tollgate_tunnels{route=\"/*\"}") == 0.0
        });
        becomes(102.0, || tollgate.metric("tollgate_requests_total{route=\"/*\",status=\"1xx\"}"));
    }
}

#[test]
fn node_s_ws_agrees_on_compression_and_closes_in_order() {
    let Some((_server, address, _)) = server() else { return };
    let Ok(modules) = env::var("NODE_PACKAGES") else {
        eprintln!("left out: `scripts/test` installs `ws` where npm is, and says where in NODE_PACKAGES");
        return;
    };
    let authority = Authority::new("Authority of the tests");
    for (_tollgate, url) in &tollgates(address, &authority) {
        let mut node = program("node", "nodejs");
        node.args(["-e", NODE, &modules, url, file_name(&authority.file())]);
        let seen: serde_json::Value = serde_json::from_str(&printed(&mut node)).unwrap();
        for (seen, extensions) in [(&seen[0], ""), (&seen[1], "permessage-deflate")] {
            assert_eq!(seen["extensions"], extensions, "{seen}");
            assert_eq!(seen["echoed"], serde_json::json!(["fragments", true]), "{seen}");
            assert_eq!(seen["pong"], "are you therebetween", "{seen}");
            assert_eq!(seen["code"], 4000, "{seen}");
        }
    }
}

/// A page, and WebSockets beside it.
fn site(server: SocketAddr, page: &Origin) -> String {
    format!(
        "access_log: {{ format: json, to: stdout }}\nupstreams:\n  pages: {{ endpoints: [\"http://{}\"] }}\n  \
        sockets: {{ endpoints: [\"http://{server}\"] }}\nroutes:\n  - {{ path: /socket, upstream: sockets }}\n  \
        - {{ path: /*, upstream: pages }}\n",
        page.address
    )
}

#[test]
fn chromium_opens_a_websocket_over_http1_and_over_http2() {
    let Some((_server, address, _)) = server() else { return };
    let page = Origin::start(|conn| {
        while conn.head()?.is_some() {
            conn.answer("200 OK", &[("content-type", "text/html")], PAGE.as_bytes())?;
        }
        Ok(())
    });
    let authority = Authority::new("Authority of the tests");
    let certificate = authority.issue("server", &["localhost"]);
    let tls = format!("address: \"127.0.0.1:0\", tls: {{ certificates: [{}] }}", pair(&certificate));
    for (listener, scheme, protocol) in [
        ("address: \"127.0.0.1:0\"".to_owned(), "http", "http/1.1"),
        (format!("{tls}, http2: false"), "https", "http/1.1"),
        (tls, "https", "h2"),
    ] {
        let yaml = format!("listeners: [{{ {listener} }}]\n{}", site(address, &page));
        let tollgate = Tollgate::start(Config::yaml(yaml));
        let url = format!("{scheme}://localhost:{}", tollgate.address.port());
        let browser = Browser::open_at(&url, "/", &[&trusting(&certificate)]);
        browser.shows("#state", &format!("echoed chat permessage-deflate {protocol}"));
        // A user who has the page open is told that Tollgate ends.
        tollgate.signal("TERM");
        browser.shows("#state", "closed 1001 true");
        let line = || {
            let lines = tollgate.stdout();
            let lines = lines.iter().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            lines.into_iter().find(|line| line["path"] == "/socket")
        };
        crate::harness::eventually("the tunnel is logged", || line().is_some());
        let line = line().unwrap();
        let version = if protocol == "h2" { "HTTP/2.0" } else { "HTTP/1.1" };
        assert_eq!((&line["status"], &line["protocol"]), (&101.into(), &version.into()), "{line}");
    }
}
