//! What keeps Tollgate from starting: it says what, and leaves nothing behind.

use std::net::TcpStream;

use super::before;
use crate::harness::{Config, Origin, Tollgate, get};

#[test]
fn a_second_instance_on_the_same_port_is_refused() {
    let origin = Origin::ok();
    let first = before(&origin);
    let taken = format!("listeners: [{{ address: \"{}\" }}]\n", first.address);
    let (code, said) = Tollgate::refuses(Config::new(&[origin.address], &taken));
    assert_eq!(code, Some(1));
    let expected = format!("can't listen on {}", first.address);
    assert!(said.contains(&expected) && said.contains("another Tollgate"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    for _ in 0..20 {
        assert_eq!(get(first.address, "/", &[]).text(), "ok", "the first one lost connections");
    }
}

#[test]
fn a_second_instance_on_the_same_admin_port_is_refused() {
    let origin = Origin::ok();
    let first = before(&origin);
    let taken = format!("admin: {{ address: \"{}\" }}\n", first.admin);
    let (code, said) = Tollgate::refuses(Config::new(&[origin.address], &taken));
    assert_eq!(code, Some(1));
    assert!(said.contains(&format!("can't listen on {}", first.admin)), "{said}");
    assert_eq!(first.admin("GET", "/readyz").status, 200);
}

#[test]
fn one_taken_port_of_several_leaves_none_of_them_open() {
    let origin = Origin::ok();
    let (first, free) = (before(&origin), super::nobody());
    let listeners = format!("listeners: [{{ address: \"{free}\" }}, {{ address: \"{}\" }}]\n", first.address);
    let (code, _) = Tollgate::refuses(Config::new(&[origin.address], &listeners));
    assert_eq!(code, Some(1));
    assert!(TcpStream::connect(free).is_err());
}

#[test]
fn an_access_log_that_can_not_be_written_is_refused() {
    let log = "access_log: { format: json, to: /nonexistent/directory/access.log }\n";
    let (code, said) = Tollgate::refuses(Config::new(&[super::nobody()], log));
    assert_eq!(code, Some(1));
    assert!(said.contains("/nonexistent/directory/access.log"), "{said}");
    assert!(said.contains("No such file or directory"), "{said}");
}

#[test]
fn a_port_is_free_again_as_soon_as_the_process_has_ended() {
    let origin = Origin::ok();
    let mut first = before(&origin);
    let taken = format!("listeners: [{{ address: \"{}\" }}]\n", first.address);
    assert_eq!(get(first.address, "/", &[]).text(), "ok");
    first.signal("TERM");
    assert!(first.wait().success());
    let second = Tollgate::start(Config::new(&[origin.address], &taken));
    assert_eq!(second.address, first.address);
    assert_eq!(get(second.address, "/", &[]).text(), "ok");
}
