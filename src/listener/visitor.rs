//! Who is at the other end of a connection, whatever the configuration makes of him.

use std::{cell::RefCell, net::SocketAddr, rc::Rc};

use crate::proxy::{Client, Patience, Worker};

/// A connection's client as the last worker saw him: another configuration may trust him, or call him, otherwise.
pub(super) struct Visitor(RefCell<(u64, Rc<Client>)>);

impl Visitor {
    /// A connection from `peer`, accepted under `worker`.
    pub(super) fn new<S>(worker: &Worker<S>, peer: SocketAddr, patience: Rc<Patience>) -> Self {
        Self(RefCell::new((worker.number(), Rc::new(worker.client(peer, patience)))))
    }

    /// As this worker sees him.
    pub(super) fn client<S>(&self, worker: &Worker<S>) -> Rc<Client> {
        let (number, client) = &mut *self.0.borrow_mut();
        if *number != worker.number() {
            let patience = Rc::clone(client.patience());
            (*number, *client) = (worker.number(), Rc::new(worker.client(client.peer(), patience)));
        }
        Rc::clone(client)
    }
}
