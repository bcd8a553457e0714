//! A TCP relay before a server, which makes the way there as bad as a test wants it.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// A relay on a free port; two threads a connection and direction.
pub struct Relay {
    pub address: SocketAddr,
    line: Arc<Line>,
}

/// What all connections share.
#[derive(Default)]
struct Line {
    state: Mutex<State>,
    changed: Condvar,
    accepted: AtomicUsize,
    /// Those of them that the client has ended.
    ended: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// How long answers are under way.
    delay: Duration,
    /// Likewise, on connections that listen to a channel.
    subscription_delay: Duration,
    /// Whether nothing comes through, in neither direction; connections are taken.
    stalled: bool,
    /// Whether connections are reset as soon as they are taken.
    refusing: bool,
    open: Vec<TcpStream>,
}

impl Relay {
    /// In front of the process that listens on this port of the loopback, now or later.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let line = Arc::<Line>::default();
        let theirs = Arc::clone(&line);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                theirs.accepted.fetch_add(1, Ordering::SeqCst);
                join(&theirs, near, port);
            }
        });
        Self { address, line }
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Answers take so much longer from now on.
    pub fn delay(&self, delay: Duration) {
        self.change(|state| state.delay = delay);
    }

    /// Likewise on connections that listen to a channel of Redis, from the next one on.
    pub fn delay_subscriptions(&self, delay: Duration) {
        self.change(|state| state.subscription_delay = delay);
    }

    /// Nothing comes through any more, and nothing says so; or again, all that has come meanwhile.
    pub fn stall(&self, stalled: bool) {
        self.change(|state| state.stalled = stalled);
    }

    /// Resets all connections, and those that come; or takes them again.
    pub fn refuse(&self, refusing: bool) {
        self.change(|state| {
            state.refusing = refusing;
            if refusing {
                state.open.drain(..).for_each(|stream| reset(&stream));
            }
        });
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.line.accepted.load(Ordering::SeqCst)
    }

    /// Connections that the client has ended.
    pub fn ended_connections(&self) -> usize {
        self.line.ended.load(Ordering::SeqCst)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.line.state.lock().unwrap());
        self.line.changed.notify_all();
    }
}

/// Joins a client to the server, if it lets itself be reached.
fn join(line: &Arc<Line>, near: TcpStream, port: u16) {
    let mut state = line.state.lock().unwrap();
    let far = if state.refusing { None } else { TcpStream::connect(("127.0.0.1", port)).ok() };
    let Some(far) = far else { return reset(&near) };
    for stream in [&near, &far] {
        stream.set_nodelay(true).unwrap();
        state.open.push(stream.try_clone().unwrap());
    }
    drop(state);
    let listens = Arc::<AtomicBool>::default();
    carry(line, near.try_clone().unwrap(), far.try_clone().unwrap(), false, &listens);
    carry(line, far, near, true, &listens);
}

/// Carries bytes from one end to the other; `back`: those are answers. `listens`: whether the client listens to a channel.
fn carry(line: &Arc<Line>, mut from: TcpStream, mut to: TcpStream, back: bool, listens: &Arc<AtomicBool>) {
    let (sender, chunks) = mpsc::channel::<(Instant, Vec<u8>)>();
    let (reading, listens) = (Arc::clone(line), Arc::clone(listens));
    thread::spawn(move || {
        let mut chunk = [0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut chunk) {
            let delay = match &*reading.state.lock().unwrap() {
                state if back && listens.load(Ordering::SeqCst) => state.delay + state.subscription_delay,
                state if back => state.delay,
                _ => Duration::ZERO,
            };
            if !back && chunk[..read].windows(9).any(|word| word == b"SUBSCRIBE") {
                listens.store(true, Ordering::SeqCst);
            }
            if sender.send((Instant::now() + delay, chunk[..read].to_vec())).is_err() {
                break;
            }
        }
        if !back {
            reading.ended.fetch_add(1, Ordering::SeqCst);
        }
    });
    let writing = Arc::clone(line);
    thread::spawn(move || {
        for (due, chunk) in chunks {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let state = writing.state.lock().unwrap();
            drop(writing.changed.wait_while(state, |state| state.stalled).unwrap());
            if to.write_all(&chunk).is_err() {
                return;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}

fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
    let _ = stream.shutdown(Shutdown::Both);
}
