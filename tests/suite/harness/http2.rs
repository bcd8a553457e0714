//! A client of HTTP/2 on one connection.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::{
    PingPong, Reason, RecvStream, SendStream,
    client::{Builder, ResponseFuture, SendRequest},
};
use http::{Request, Response};
use tokio::{net::TcpStream, sync::oneshot, time::timeout};

use super::PATIENCE;

/// A connection, which speaks HTTP/2 from its first byte.
pub struct Http2Client {
    requests: SendRequest<Bytes>,
    address: SocketAddr,
    pub pings: PingPong,
    ended: Option<oneshot::Receiver<Result<(), h2::Error>>>,
}

/// An answer that was read to its end.
#[derive(Debug)]
pub struct Http2Reply {
    pub head: Response<()>,
    pub body: Vec<u8>,
}

impl Http2Reply {
    pub fn status(&self) -> u16 {
        self.head.status().as_u16()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Http2Client {
    pub async fn connect(address: SocketAddr) -> Self {
        Self::with(address, &Builder::new()).await
    }

    /// With settings of its own.
    pub async fn with(address: SocketAddr, settings: &Builder) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (requests, mut connection) = settings.handshake(stream).await.unwrap();
        let pings = connection.ping_pong().unwrap();
        let (tell, ended) = oneshot::channel();
        tokio::spawn(async move {
            // A test that is over does not listen.
            let _ = tell.send(connection.await);
        });
        Self { requests, address, pings, ended: Some(ended) }
    }

    /// A request with these header fields. With a body, unless `is_whole`.
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        is_whole: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut requests = self.requests.clone().ready().await?;
        requests.send_request(request.body(()).unwrap(), is_whole)
    }

    /// A request without a body, and its answer.
    pub async fn get(&mut self, path: &str, fields: &[(&str, &str)]) -> Result<Http2Reply, h2::Error> {
        let (answer, _) = self.send("GET", path, fields, true).await?;
        read(answer).await
    }

    /// Waits until the server has read what was sent so far.
    pub async fn ping(&mut self) -> Result<(), h2::Error> {
        timeout(PATIENCE, self.pings.ping(h2::Ping::opaque())).await.expect("a pong comes").map(drop)
    }

    /// How the connection ended, which it does.
    pub async fn ended(&mut self) -> Result<(), h2::Error> {
        let ended = self.ended.take().expect("it is asked for once");
        timeout(PATIENCE, ended).await.expect("the connection ends").expect("its task tells how")
    }
}

/// Reads an answer to its end.
pub async fn read(answer: ResponseFuture) -> Result<Http2Reply, h2::Error> {
    let read = async {
        let (head, mut stream) = answer.await?.into_parts();
        let mut body = Vec::new();
        while let Some(data) = stream.data().await {
            let data = data?;
            stream.flow_control().release_capacity(data.len())?;
            body.extend_from_slice(&data);
        }
        Ok(Http2Reply { head: Response::from_parts(head, ()), body })
    };
    timeout(PATIENCE, read).await.expect("the answer ends")
}

/// Reads nothing until the stream is reset: the reason.
pub async fn reset_of(mut stream: RecvStream) -> Option<Reason> {
    let reset = async {
        loop {
            match stream.data().await {
                Some(Err(error)) => break error.reason(),
                // The window stays closed.
                Some(Ok(_)) => {}
                None => break None,
            }
        }
    };
    timeout(PATIENCE, reset).await.expect("the stream ends")
}

/// Runs a test of such clients.
pub fn in_runtime<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

/// Runs a test of one such client, which is connected.
pub fn by_http2<T>(address: SocketAddr, test: impl AsyncFnOnce(Http2Client) -> T) -> T {
    in_runtime(async { test(Http2Client::connect(address).await).await })
}
