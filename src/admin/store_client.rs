//! The store, as handlers use it.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use send_wrapper::SendWrapper;

use crate::limit::{
    Check, ClearedLimit, Decision, LimitUsage, Policy, Store, StoreAdmin, Taken, Unavailable,
    algorithm::metadata_list::Entry,
};

type ObjectResult<'a, T> = LocalBoxFuture<'a, Result<T, Unavailable>>;

/// Any store, used on the thread of the admin port.
///
/// A store and its futures may belong to one thread, and axum takes only handlers that could be moved to another. The
/// port has a single thread, so nothing is moved; [`SendWrapper`] checks that whenever a future is polled.
pub(super) struct StoreClient(SendWrapper<Box<dyn ObjectStore>>);

impl StoreClient {
    /// Call it on the thread that uses the store.
    pub(super) fn new(store: impl StoreAdmin + 'static) -> Self {
        Self(SendWrapper::new(Box::new(store)))
    }
}

impl Store for StoreClient {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        SendWrapper::new(self.0.decide(checks)).await
    }

    async fn look(&self, checks: &[Check<'_>]) -> Result<Decision, Unavailable> {
        SendWrapper::new(self.0.look(checks)).await
    }

    async fn settle(&self, taken: &[Taken<'_>]) -> Result<(), Unavailable> {
        SendWrapper::new(self.0.settle(taken)).await
    }
}

impl StoreAdmin for StoreClient {
    async fn peek(&self, policy: &Policy, identifier: &str) -> Result<LimitUsage, Unavailable> {
        SendWrapper::new(self.0.peek(policy, identifier)).await
    }

    async fn entries(&self, policy: &Policy, identifier: &str) -> Result<Vec<Arc<Entry>>, Unavailable> {
        SendWrapper::new(self.0.entries(policy, identifier)).await
    }

    async fn reset(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        SendWrapper::new(self.0.reset(policies, identifier)).await
    }

    async fn clear(&self, policies: &[Policy], identifier: &str) -> Result<Vec<ClearedLimit>, Unavailable> {
        SendWrapper::new(self.0.clear(policies, identifier)).await
    }
}

/// [`StoreAdmin`] as an object, so that handlers are the same for every store.
trait ObjectStore {
    fn decide<'a>(&'a self, checks: &'a [Check<'a>]) -> ObjectResult<'a, Decision>;
    fn look<'a>(&'a self, checks: &'a [Check<'a>]) -> ObjectResult<'a, Decision>;
    fn settle<'a>(&'a self, taken: &'a [Taken<'a>]) -> ObjectResult<'a, ()>;
    fn peek<'a>(&'a self, policy: &'a Policy, identifier: &'a str) -> ObjectResult<'a, LimitUsage>;
    fn entries<'a>(&'a self, policy: &'a Policy, identifier: &'a str) -> ObjectResult<'a, Vec<Arc<Entry>>>;
    fn reset<'a>(
        &'a self,
        policies: &'a [Policy],
        identifier: &'a str,
    ) -> ObjectResult<'a, Vec<ClearedLimit>>;
    fn clear<'a>(
        &'a self,
        policies: &'a [Policy],
        identifier: &'a str,
    ) -> ObjectResult<'a, Vec<ClearedLimit>>;
}

impl<S: StoreAdmin> ObjectStore for S {
    fn decide<'a>(&'a self, checks: &'a [Check<'a>]) -> ObjectResult<'a, Decision> {
        Box::pin(Store::decide(self, checks))
    }

    fn look<'a>(&'a self, checks: &'a [Check<'a>]) -> ObjectResult<'a, Decision> {
        Box::pin(Store::look(self, checks))
    }

    fn settle<'a>(&'a self, taken: &'a [Taken<'a>]) -> ObjectResult<'a, ()> {
        Box::pin(Store::settle(self, taken))
    }

    fn peek<'a>(&'a self, policy: &'a Policy, identifier: &'a str) -> ObjectResult<'a, LimitUsage> {
        Box::pin(StoreAdmin::peek(self, policy, identifier))
    }

    fn entries<'a>(&'a self, policy: &'a Policy, identifier: &'a str) -> ObjectResult<'a, Vec<Arc<Entry>>> {
        Box::pin(StoreAdmin::entries(self, policy, identifier))
    }

    fn reset<'a>(
        &'a self,
        policies: &'a [Policy],
        identifier: &'a str,
    ) -> ObjectResult<'a, Vec<ClearedLimit>> {
        Box::pin(StoreAdmin::reset(self, policies, identifier))
    }

    fn clear<'a>(
        &'a self,
        policies: &'a [Policy],
        identifier: &'a str,
    ) -> ObjectResult<'a, Vec<ClearedLimit>> {
        Box::pin(StoreAdmin::clear(self, policies, identifier))
    }
}
