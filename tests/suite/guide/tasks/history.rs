//! The pages about what was used, and who was denied.

use super::Task;
use crate::harness::{Client, Origin};

/// Sends requests with the key in this variable of the page, from this address.
#[track_caller]
fn send(task: &Task, name: &str, source: &str, (method, path): (&str, &str), count: usize) {
    let (_, key) = task.keys.iter().find(|(known, _)| known == name).unwrap();
    let mut client = Client::connect_from(source.parse().unwrap(), task.tollgate.address);
    for _ in 0..count {
        client.request(method, path, &[("x-api-key", key)], b"");
    }
}

#[test]
fn invoice_a_month() {
    let task = Task::start("invoice-a-month", "enterprise:", &[], Origin::ok());
    send(&task, "ACME", "127.0.0.1", ("GET", "/"), 130);
    send(&task, "GLOBEX", "127.0.0.1", ("GET", "/"), 310);
    task.shows("tollgate usage");
    // Its other commands.
    let csv = task.run("tollgate usage --month 2026-11 --csv");
    assert_eq!(
        csv.lines().filter(|line| line.contains("acme") || line.contains("globex")).count(),
        4,
        "{csv}"
    );
    let days = task.run("tollgate usage --month 2026-11 --customer acme --by customer,day,route --csv");
    assert!(days.contains(",/*,") && !days.contains("globex"), "{days}");
}

#[test]
fn answer_a_complaint_about_yesterday() {
    let task = Task::start("complaint-about-yesterday", "per-minute", &[], Origin::ok());
    send(&task, "ACME", "127.0.0.1", ("POST", "/v1/orders"), 75);
    send(&task, "ACME", "127.0.0.2", ("POST", "/v1/orders"), 16);
    task.run("tollgate limits customer:acme --reset");
    task.shows("tollgate why");
}

#[test]
fn move_a_customer_to_another_plan() {
    let mut task = Task::start("move-a-customer", "keys.json", &[], Origin::ok());
    let page = task.page.text.clone();
    let commands = page.lines().filter(|line| line.starts_with("    tollgate keys create"));
    for (name, command) in ["ACME", "GLOBEX", "CI"].into_iter().zip(commands) {
        let made = task.run(command);
        let key = made.split_whitespace().find(|word| word.starts_with("tgk_")).expect(&made);
        task.keys.push((name.to_owned(), key.to_owned()));
    }
    assert_eq!(task.keys.len(), 3);
    send(&task, "ACME", "127.0.0.1", ("GET", "/"), 100);
    send(&task, "CI", "127.0.0.1", ("GET", "/"), 30);
    send(&task, "GLOBEX", "127.0.0.1", ("GET", "/"), 122);
    task.shows("tollgate customers");
    let left = |key: &str| {
        let reply = crate::harness::get(task.tollgate.address, "/", &[("x-api-key", key)]);
        (reply.status, reply.header("ratelimit").unwrap().to_owned())
    };
    let (status, left) = left(&task.keys[0].1);
    assert!(status == 200 && left.contains("r=899;"), "100 of 1000 remain used: {left}");
}

#[test]
fn alerts_on_budgets() {
    let hook = Origin::echo();
    let url = format!("http://{}/T0/B0", hook.address);
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqr";
    let changes = [("${HOOK_URL}", &*url), ("${HOOK_SECRET}", secret)];
    let mut task = Task::start("budget-alerts", "alerts:", &changes, Origin::ok());
    // The page shows the webhook of its own.
    let shown = format!("http://{}", hook.address);
    task.page.text = task.page.text.replace("https://hooks.example.com  ", &format!("{shown}  "));
    task.shows("tollgate alerts test");
    send(&task, "ACME", "127.0.0.1", ("GET", "/"), 80);
    task.shows("$ tollgate alerts\n");
    let page = &task.page.text;
    let message = &page[page.find("```json\n").unwrap() + 8..];
    let message: serde_json::Value = serde_json::from_str(&message[..message.find("```").unwrap()]).unwrap();
    let sent = hook.received().concat();
    let body = sent.lines().find(|line| line.contains("usage.share_reached")).unwrap();
    let body: serde_json::Value = serde_json::from_str(&body[body.find('{').unwrap()..]).unwrap();
    let members = |value: &serde_json::Value| Vec::from_iter(value.as_object().unwrap().keys().cloned());
    assert_eq!([members(&body), members(&body["data"])], [members(&message), members(&message["data"])]);
    for name in ["policy", "subject", "customer", "plan", "share", "used", "limit", "limit_text", "mode"] {
        assert_eq!(body["data"][name], message["data"][name], "{name}");
    }
    let text = |value: &serde_json::Value| {
        value["text"].as_str().unwrap().split(", until").next().unwrap().to_owned()
    };
    assert_eq!(text(&body), text(&message));
}
