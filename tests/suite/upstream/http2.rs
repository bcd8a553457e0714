//! HTTP/2 to upstreams.

use bytes::Bytes;
use h2::{Reason, server::Builder};

use crate::harness::{
    Authority, Http2Client, Http2Origin, eventually, in_runtime, printed, program, read, send_body,
};

#[test]
fn the_origin_of_these_tests_does_what_they_say() {
    let echo = Http2Origin::echo();
    in_runtime(async {
        let mut client = Http2Client::connect(echo.address).await;
        let (answer, mut body) = client.send("POST", "/a", &[("x-a", "1")], false).await.unwrap();
        body.send_data(Bytes::from_static(b"body"), false).unwrap();
        body.send_trailers([("x-sum".parse().unwrap(), "4".parse().unwrap())].into_iter().collect()).unwrap();
        let reply = read(answer).await.unwrap();
        assert_eq!(
            (reply.text().as_str(), &reply.head.headers()["x-got-x-a"]),
            ("body", &"1".parse().unwrap())
        );
        assert_eq!(echo.heads()[0].uri().path(), "/a");
        echo.go_away();
        assert!(client.ended().await.is_ok());
    });
    eventually("its connection has ended", || echo.open_connections() == 0);
    assert_eq!(echo.connections(), 1);

    let stalling = Http2Origin::start(|mut exchange| async move {
        if exchange.head.uri().path() == "/unanswered" {
            return exchange.reset_unanswered().await;
        }
        assert_eq!(exchange.data().await?, "up");
        let mut stream = exchange.head(200, &[("x-connection", &exchange.connection.to_string())])?;
        send_body(&mut stream, Bytes::from_static(b"down")).await?;
        exchange.reset(&mut stream).await
    });
    in_runtime(async {
        let mut client = Http2Client::connect(stalling.address).await;
        let (unanswered, _) = client.send("GET", "/unanswered", &[], true).await.unwrap();
        client.ping().await.unwrap();
        drop(unanswered);
        let (answer, mut body) = client.send("POST", "/", &[], false).await.unwrap();
        body.send_data(Bytes::from_static(b"up"), false).unwrap();
        let answer = answer.await.unwrap();
        assert_eq!(answer.headers()["x-connection"], "0");
        assert_eq!(stalling.open_streams(), 1, "the other one was reset");
        drop((answer, body));
        client.ping().await.unwrap();
        stalling.close();
        let _ = client.ended().await;
    });
    eventually("its streams have ended", || stalling.open_streams() == 0);
    assert_eq!(stalling.resets(), [Reason::CANCEL, Reason::CANCEL]);

    let authority = Authority::new("tests");
    let certificate = authority.issue("origin", &["localhost"]);
    let secure = Http2Origin::over_tls(&certificate, Builder::new(), |mut exchange| async move {
        exchange.respond(200, &[], b"ok")
    });
    let url = format!("https://localhost:{}/", secure.address.port());
    let ca = authority.file();
    let common = ["-sS", "--max-time", "10", "-w", " %{http_version}", "--cacert", ca.to_str().unwrap()];
    assert_eq!(printed(program("curl", "curl").args(common).arg(url)), "ok 2");
    let ok = Http2Origin::ok();
    let url = format!("http://{}/", ok.address);
    assert_eq!(printed(program("curl", "curl").args(["-sS", "--http2-prior-knowledge"]).arg(url)), "ok");
}
