//! Who is at the other end of a connection, whatever the configuration makes of him.

use std::{cell::RefCell, net::SocketAddr, rc::Rc};

use crate::proxy::{Client, Patience, Worker};

/// A connection, and its client as the last worker saw it: another configuration may trust him, or call him, otherwise.
pub(super) struct Visitor {
    peer: SocketAddr,
    patience: Rc<Patience>,
    /// With the worker's number.
    seen: RefCell<(u64, Rc<Client>)>,
}

impl Visitor {
    /// A connection from `peer`, accepted under `worker`.
    pub(super) fn new<S>(worker: &Worker<S>, peer: SocketAddr, patience: Rc<Patience>) -> Self {
        let client = Rc::new(worker.client(peer, Rc::clone(&patience)));
        Self { peer, patience, seen: RefCell::new((worker.number(), client)) }
    }

    /// As this worker sees it.
    pub(super) fn client<S>(&self, worker: &Worker<S>) -> Rc<Client> {
        let (number, client) = &mut *self.seen.borrow_mut();
        if *number != worker.number() {
            *number = worker.number();
            *client = Rc::new(worker.client(self.peer, Rc::clone(&self.patience)));
        }
        Rc::clone(client)
    }
}
