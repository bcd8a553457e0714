//! The origin of the demo: an API that echoes requests and has a login with a password.

use std::{convert::Infallible, io, net::SocketAddr, thread};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, runtime, task::LocalSet};

/// The correct password.
pub(super) const PASSWORD: &str = "correct horse battery staple";
/// Maximum length of a password in bytes.
const MAX_PASSWORD: usize = 1_024;

/// Starts the API on a free port and a separate thread, until the process ends.
///
/// # Errors
/// A port, a thread or a runtime is not available.
pub(super) fn start() -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let serve = move || {
        LocalSet::new().block_on(&runtime, async {
            if let Err(error) = accept(listener).await {
                tracing::error!("the demo's origin stopped: {error}");
            }
        });
    };
    thread::Builder::new().name("origin".into()).spawn(serve)?;
    Ok(address)
}

async fn accept(listener: std::net::TcpListener) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer));
        // A failed connection affects only its client.
        tokio::task::spawn_local(async move { drop(connection.await) });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let field = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let body = serde_json::json!({
        "method": request.method().as_str(),
        "path": request.uri().path(),
        "user": field("x-user-id"),
        "client": field("x-forwarded-for"),
    });
    let is_login = request.uri().path() == "/api/login";
    let mut response = Response::new(Full::from(format!("{body}\n")));
    if is_login {
        let password = Limited::new(request.into_body(), MAX_PASSWORD).collect().await;
        if !password.is_ok_and(|password| password.to_bytes() == PASSWORD) {
            *response.status_mut() = StatusCode::UNAUTHORIZED;
        }
    }
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
