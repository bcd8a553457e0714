//! The records as the admin port asks for them.

use ipnet::IpNet;
use redis::aio::ConnectionLike;

use super::{Scope, read, write};
use crate::{
    abuse::{Archive, Changes, Others},
    limit::Unavailable,
};

/// Reads what other instances know. `connect` gives a connection for each question, one that is open already
/// wherever there is one.
#[derive(Debug)]
pub struct Records<F> {
    scope: Scope,
    connect: F,
}

impl<F> Records<F> {
    /// The records of `scope`, by the connections that `connect` gives.
    pub fn new(scope: Scope, connect: F) -> Self {
        Self { scope, connect }
    }
}

impl<F, C> Archive for Records<F>
where
    F: AsyncFn() -> Result<C, Unavailable>,
    C: ConnectionLike,
{
    async fn changed(&self, since: i64) -> Result<Changes, Unavailable> {
        let mut connection = (self.connect)().await?;
        read::changed(&mut connection, &self.scope, since).await.map_err(unavailable)
    }

    async fn read(&self, addresses: &[IpNet]) -> Result<Vec<Others>, Unavailable> {
        let mut connection = (self.connect)().await?;
        read::read(&mut connection, &self.scope, addresses).await.map_err(unavailable)
    }

    async fn forget(&self, address: IpNet) -> Result<(), Unavailable> {
        let mut connection = (self.connect)().await?;
        write::forget(&mut connection, &self.scope, address).await.map_err(unavailable)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands where a function of errors is wanted")]
fn unavailable(error: redis::RedisError) -> Unavailable {
    Unavailable(error.to_string())
}
