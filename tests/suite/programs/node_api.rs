//! An API on Node's own `http`.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use super::{
    before,
    load::{Load, h2load},
};
use crate::harness::{Client, Config, Running, Tollgate, free_port, get, program, request};

/// Clients that meet Node's idle timer.
const CLIENTS: usize = 48;

/// Answers `hello`, or events (`/events`), or (`/stats`) who it is and what it saw so far.
const API: &str = r"
let hellos = 0, connections = 0;
const server = require('http').createServer((request, response) => {
  if (request.url === '/stats') return response.end(JSON.stringify({ pid: process.pid, hellos, connections }));
  if (request.url === '/events') {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
    let number = 0;
    const timer = setInterval(() => response.write(`data: ${number++}\n\n`), 100);
    return response.on('close', () => clearInterval(timer));
  }
  hellos++;
  response.end('hello');
});
const [port, keepAlive] = process.argv.slice(1).map(Number);
if (keepAlive) server.keepAliveTimeout = keepAlive;
server.on('connection', () => connections++);
server.listen(port, '127.0.0.1', () => console.log(server.address().port));
";

/// Routes by the regular expressions that Express makes of its paths, and takes the method from where its middleware
/// `method-override` does. Answers what it did.
const EXPRESS: &str = r"
const server = require('http').createServer((request, response) => {
  const method = request.headers['x-http-method-override'] || request.method;
  const path = request.url.split('?')[0];
  if (/^\/api\/login\/?$/i.test(path)) {
    guesses++;
    return response.end(`guess ${guesses}`);
  }
  if (/^\/api\/orders\/(?:([^\/]+?))\/?$/i.test(path) && method === 'DELETE') return response.end('deleted');
  response.statusCode = 404;
  response.end('Cannot ' + method + ' ' + path);
});
let guesses = 0;
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
";

struct Api {
    address: SocketAddr,
    _process: Running,
}

impl Api {
    fn start() -> Self {
        Self::start_at(free_port(), "")
    }

    /// Of this program, which prints its port.
    fn run(program: &str, arguments: &[&str]) -> Self {
        let mut process = self::program("node", "nodejs")
            .args(["-e", program])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .map(Running)
            .unwrap();
        let mut port = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port.trim().parse().unwrap()));
        Self { address, _process: process }
    }

    /// On this port; closes connections that are idle for `keep_alive` ms, Node's 5 s where that is empty.
    fn start_at(port: u16, keep_alive: &str) -> Self {
        Self::run(API, &[&port.to_string(), keep_alive])
    }

    fn stats(&self, name: &str) -> u64 {
        get(self.address, "/stats", &[]).json()[name].as_u64().unwrap()
    }
}

#[test]
fn node_answers_every_request_over_few_connections() {
    let api = Api::start();
    let tollgate = before(api.address);
    assert_eq!(h2load(tollgate.address, 3000, &[]), [3000, 0, 0, 0]);
    assert_eq!(api.stats("hellos"), 3000);
    // No more than the clients have; the others are those that asked for the stats.
    let connections = api.stats("connections");
    assert!(connections <= 16 + 2, "{connections} connections for 3000 requests of 16 clients");
}

#[test]
fn node_sees_exactly_what_the_limit_admits() {
    let api = Api::start();
    let policy = "policies:\n  exact: { algorithm: sliding_log, key: ip, limit: 500/1h }\n";
    let tollgate = Tollgate::start(Config::new(&[api.address], policy).with_policy("exact"));
    assert_eq!(h2load(tollgate.address, 2000, &[]), [500, 0, 1500, 0]);
    assert_eq!(api.stats("hellos"), 500);
}

#[test]
fn no_spelling_gets_more_guesses_out_of_express() {
    let api = Api::run(EXPRESS, &[]);
    let tollgate = Tollgate::start(Config::yaml(format!(
        "policies:\n  login: {{ algorithm: sliding_log, key: ip, limit: 3/1h }}\nupstreams:\n  api: {{ endpoints: [\"http://{}\"] }}\nroutes:\n  - {{ path: /api/login, upstream: api, policies: [login] }}\n  - {{ path: /*, upstream: api }}\n",
        api.address
    )));
    let spellings =
        ["/api/login", "/api/login/", "/API/login", "/Api/Login/", "/%61PI/login", "/api/LOGIN?x=/"];
    let mut guesses = 0;
    for round in 0..20 {
        for path in spellings {
            for method in ["GET", "POST"] {
                let reply = request(tollgate.address, method, path, &[], b"");
                guesses += usize::from(reply.text().starts_with("guess"));
                assert!(matches!(reply.status, 200 | 429), "{round} {path}: {reply:?}");
            }
        }
    }
    assert_eq!(guesses, 3);
    let disguised = [("x-http-method-override", "DELETE")];
    assert_eq!(request(api.address, "POST", "/api/orders/7", &disguised, b"").text(), "deleted");
    assert_eq!(request(tollgate.address, "POST", "/api/orders/7", &disguised, b"").status, 404);
}

/// How long this API leaves a connection idle, as it does it: Node's versions add to what they are told.
fn idle_time(api: &Api) -> Duration {
    let mut client = Client::connect(api.address);
    client.request("GET", "/", &[], b"");
    let answered = Instant::now();
    assert!(client.closed());
    answered.elapsed()
}

#[test]
fn connections_that_node_closes_as_a_get_is_sent_cost_no_answer() {
    let api = Api::start_at(free_port(), "20");
    // An upstream a client, so that none takes the connection of another before it is closed.
    let (mut upstreams, mut routes) = (String::new(), String::new());
    for number in 0..CLIENTS {
        upstreams += &format!("  u{number}: {{ endpoints: [\"http://{}\"] }}\n", api.address);
        routes += &format!("  - {{ path: /{number}, upstream: u{number} }}\n");
    }
    let tollgate = Tollgate::start(Config::yaml(format!("upstreams:\n{upstreams}routes:\n{routes}")));
    let idle = idle_time(&api).as_micros() as u64;
    let before = api.stats("connections");
    // They ask again at about the time when Node closes the connection: just before, just after.
    let about = idle.saturating_sub(3_000)..idle + 3_000;
    let load = Load::begin(tollgate.address, CLIENTS, move || {
        thread::sleep(Duration::from_micros(fastrand::u64(about.clone())));
    });
    load.goes_on(CLIENTS * 3);
    let (answered, failed) = load.end();
    assert_eq!(failed, 0, "of {answered}");
    let connections = api.stats("connections") - before;
    assert!(connections > CLIENTS as u64 * 3 / 2, "{connections} connections: Node closed hardly any");
}

#[test]
fn one_of_two_node_processes_is_killed_and_comes_back_under_load() {
    let [killed, other] = [(); 2].map(|()| Api::start());
    let port = killed.address.port();
    let tollgate = Tollgate::start(Config::new(&[killed.address, other.address], ""));
    let load = Load::begin(tollgate.address, 8, || {});
    load.goes_on(500);
    drop(killed);
    load.goes_on(500);
    let back = Api::start_at(port, "");
    // It is left alone for a second after it could not be reached.
    crate::harness::eventually("it is used again", || back.stats("hellos") > 0);
    load.goes_on(500);
    let (answered, failed) = load.end();
    assert!(failed <= 8, "{failed} of {answered} failed, more than were under way");
}

#[test]
fn node_s_events_arrive_one_by_one() {
    let api = Api::start();
    // Shorter than the stream lasts, longer than it is silent.
    let config = Config::upstream(&[api.address], "timeouts: { idle: 1500ms, response: 1500ms }", "");
    let tollgate = Tollgate::start(config);
    let mut client = Client::connect(tollgate.address);
    let head = client.send("GET /events HTTP/1.1\r\nhost: a\r\n\r\n").head();
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    for number in 0..25 {
        let event = client.chunk().unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&event), format!("data: {number}\n\n"));
    }
}
