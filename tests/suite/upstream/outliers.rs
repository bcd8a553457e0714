//! Outlier detection: which endpoints are ejected for what their requests meet, and what is left where most endpoints fail.

use std::sync::atomic::Ordering;

use super::{
    health::{FAST, Service, asking_until, before, logged, urls},
    upstream,
};
use crate::harness::{Client, Config, Origin, Tollgate, becomes, eventually, get, nobody};

#[test]
fn failures_in_a_row_eject_an_endpoint_for_a_while() {
    let services = [Service::start(200, 500), Service::ok()];
    let [bad, good] = &services;
    let tollgate = before(&services, "balance: round_robin, outlier: { failures: 3, eject: 1s }");
    let ejected =
        "is ejected for 1s: 3 requests in a row failed, the last: it responded 500 Internal Server Error";
    let address = bad.origin.address;
    asking_until("it is ejected", &tollgate, || logged(&tollgate, address, ejected) == 1);
    assert_eq!(bad.requests(), 3);
    bad.others.store(200, Ordering::SeqCst);
    eventually("it is back", || logged(&tollgate, address, "is no longer ejected") == 1);
    asking_until("it gets requests", &tollgate, || bad.requests() > 3);
    bad.others.store(503, Ordering::SeqCst);
    // One ejection is not forgotten at once, and the next lasts longer.
    asking_until("it is ejected again", &tollgate, || logged(&tollgate, address, "is ejected for") == 2);
    assert_eq!(logged(&tollgate, good.origin.address, "ejected"), 0);
}

#[test]
fn a_success_ends_the_row() {
    let services = [Service::ok(), Service::ok()];
    let [bad, _] = &services;
    let tollgate = before(&services, "balance: round_robin, outlier: { failures: 3 }");
    for _ in 0..4 {
        for status in [500, 500, 404] {
            bad.others.store(status, Ordering::SeqCst);
            let asked = bad.requests();
            asking_until("it is asked", &tollgate, || bad.requests() > asked);
        }
    }
    assert_eq!(logged(&tollgate, bad.origin.address, "ejected"), 0);
}

#[test]
fn an_endpoint_that_does_not_respond_or_breaks_off_is_ejected() {
    let (silent, breaking) = (Origin::sink(), Origin::start(|conn| conn.head().map(drop)));
    for (bad, why) in
        [(&silent, "it did not respond in time"), (&breaking, "the connection broke before the response")]
    {
        let good = Origin::ok();
        let settings = "balance: round_robin, timeouts: { response: 1s }, outlier: { failures: 2 }";
        let tollgate = Tollgate::start(upstream(&urls(&[bad.address, good.address]), settings));
        asking_until("it is ejected", &tollgate, || {
            logged(&tollgate, bad.address, &format!("2 requests in a row failed, the last: {why}")) == 1
        });
        let asked = bad.connections();
        for _ in 0..4 {
            assert_eq!(get(tollgate.address, "/", &[]).status, 200);
        }
        assert_eq!(bad.connections(), asked);
    }
}

#[test]
fn a_malformed_response_on_a_kept_connection_is_a_failure() {
    let bad = Origin::start(|conn| {
        conn.head()?;
        conn.answer("200 OK", &[], b"ok")?;
        conn.head()?;
        conn.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok!")
    });
    let good = Origin::ok();
    let settings = "balance: round_robin, retry: { max: 0 }, outlier: { failures: 1 }";
    let tollgate = Tollgate::start(upstream(&urls(&[bad.address, good.address]), settings));
    asking_until("it is ejected", &tollgate, || logged(&tollgate, bad.address, "is ejected for") == 1);
}

#[test]
fn an_endpoint_that_gives_up_on_a_slow_upload_is_not_counted_as_failed() {
    // Both are impatient with uploads that are slow.
    let impatient = |answer: &'static [u8]| {
        Origin::start(move |conn| {
            while let Some(head) = conn.head()? {
                if head.starts_with("POST") {
                    conn.take(5)?;
                    return conn.send(answer);
                }
                conn.answer("200 OK", &[], b"ok")?;
            }
            Ok(())
        })
    };
    for answer in
        [&b""[..], b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"]
    {
        let services = [impatient(answer), impatient(answer)];
        let addresses = services.each_ref().map(|service| service.address);
        let settings =
            "balance: round_robin, outlier: { failures: 2 }, timeouts: { response: 20s, total: 2s }";
        let tollgate = Tollgate::start(upstream(&urls(&addresses), settings));
        for _ in 0..6 {
            let mut client = Client::connect(tollgate.address);
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nbegun");
            assert!(client.reply().status >= 500);
        }
        // Neither is what `total` breaks off.
        let slow: Vec<_> = (0..6)
            .map(|_| {
                Client::sending(
                    tollgate.address,
                    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nx",
                )
            })
            .collect();
        for mut client in slow {
            assert_eq!(client.reply().status, 504);
        }
        for address in addresses {
            assert_eq!(logged(&tollgate, address, "ejected"), 0);
        }
    }
}

#[test]
fn no_more_than_the_share_is_ever_ejected() {
    let services = [(); 4].map(|()| Service::start(200, 500));
    let addresses: Vec<_> = services.iter().map(|service| service.origin.address).collect();
    let settings = "outlier: { failures: 2, eject: 1h, at_most: 50% }";
    let tollgate = Tollgate::start(Config::upstream(&addresses, settings, "workers: 4\n"));
    let ejected = || addresses.iter().map(|&address| logged(&tollgate, address, "is ejected")).sum::<usize>();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(get(tollgate.address, "/", &[]).status, 500);
                }
            });
        }
    });
    becomes(2, ejected);
    let before: Vec<_> = services.iter().map(Service::requests).collect();
    for _ in 0..20 {
        get(tollgate.address, "/", &[]);
    }
    let asked = services.iter().zip(before).filter(|(service, before)| service.requests() > *before).count();
    assert_eq!((asked, ejected()), (2, 2), "the other two get the requests");
}

#[test]
fn the_only_endpoint_is_never_ejected_and_outlier_off_ejects_none() {
    for (services, settings) in [
        (vec![Service::start(200, 500)], "outlier: { failures: 1, at_most: 100% }"),
        (vec![Service::start(200, 500), Service::ok()], "outlier: off"),
    ] {
        let tollgate = before(&services, settings);
        for _ in 0..10 {
            get(tollgate.address, "/", &[]);
        }
        let asked: Vec<_> = services.iter().map(Service::requests).collect();
        assert!(asked.iter().all(|asked| *asked == 10 / services.len()), "{asked:?}");
        assert_eq!(logged(&tollgate, services[0].origin.address, "ejected"), 0);
    }
}

#[test]
fn where_most_endpoints_are_unhealthy_all_get_requests() {
    let services = [Service::start(500, 200), Service::start(500, 200), Service::ok()];
    let settings = "health: { path: /healthz, interval: 1h }";
    let tollgate = before(&services, settings);
    eventually("two are unhealthy", || {
        services[..2].iter().all(|service| logged(&tollgate, service.origin.address, "is unhealthy") == 1)
    });
    for _ in 0..6 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    assert!(services.iter().all(|service| service.requests() == 2));

    // Half of them are enough.
    let services = [Service::start(500, 200), Service::ok()];
    let tollgate = before(&services, settings);
    eventually("one is unhealthy", || logged(&tollgate, services[0].origin.address, "is unhealthy") == 1);
    for _ in 0..4 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    assert_eq!((services[0].requests(), services[1].requests()), (0, 4));
}

#[test]
fn in_panic_mode_endpoints_that_nobody_can_reach_are_left_out() {
    let service = Service::ok();
    let addresses = [nobody(), nobody(), nobody(), service.origin.address];
    let tollgate = Tollgate::start(upstream(&urls(&addresses), FAST));
    eventually("three are dead", || {
        addresses[..3].iter().all(|&address| logged(&tollgate, address, "is unhealthy") == 1)
    });
    for _ in 0..30 {
        assert_eq!(get(tollgate.address, "/", &[]).status, 200);
    }
    assert_eq!(tollgate.metric("tollgate_upstream_retries_total"), 0.0);
}
