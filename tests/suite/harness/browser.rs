//! A real browser, without a window: Chromium, driven by its own driver.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use fantoccini::{Client, ClientBuilder, Locator, elements::Element, wd::WebDriverCompatibleCommand};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{
    PATIENCE, Running,
    bound::{Bound, Room},
    program,
};

/// Each is some ten processes.
static BROWSERS: Bound = Bound::new(3);

/// A browser with one page. It ends with the test.
pub struct Browser {
    runtime: Runtime,
    /// Taken when it ends.
    client: Option<Client>,
    /// What the pages are at: `http://127.0.0.1:9900`
    origin: String,
    _driver: Running,
    _room: Room,
}

impl Browser {
    /// A new one, with nothing of any other in it, on the pages of `admin`.
    pub fn open(admin: SocketAddr, path: &str) -> Self {
        Self::open_at(&format!("http://{admin}"), path, &[])
    }

    /// Likewise on those of `origin`, such as `https://localhost:8443`, with more arguments for Chromium.
    pub fn open_at(origin: &str, path: &str, arguments: &[&str]) -> Self {
        let room = BROWSERS.enter();
        // It takes the port of one address family, and ends if somebody has that of the other.
        let (driver, port) = (0..10).find_map(|_| driver()).expect("chromedriver says where it listens");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let own = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--lang=en",
            // It asks for updates and the like as it starts, otherwise.
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ];
        let arguments = [own.as_slice(), arguments].concat();
        let capabilities = json!({
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let client = runtime.block_on(async {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            builder.capabilities(capabilities.as_object().unwrap().clone());
            builder.connect(&format!("http://127.0.0.1:{port}")).await.unwrap()
        });
        let browser =
            Self { runtime, client: Some(client), origin: origin.to_owned(), _driver: driver, _room: room };
        browser.go(path);
        browser
    }

    /// Opens another page.
    #[track_caller]
    pub fn go(&self, path: &str) {
        self.run(self.client().goto(&format!("{}{path}", self.origin)));
    }

    /// Path and query of the page that is open.
    pub fn path(&self) -> String {
        let url = self.run(self.client().current_url());
        url.as_str().trim_start_matches(&self.origin).to_owned()
    }

    /// What a script returns.
    #[track_caller]
    pub fn script(&self, script: &str) -> Value {
        self.run(self.client().execute(script, Vec::new()))
    }

    /// The text of the first element that `css` finds, as it is shown; empty if there is none.
    pub fn text(&self, css: &str) -> String {
        let quoted = serde_json::to_string(css).unwrap();
        let found = self.script(&format!("return document.querySelector({quoted})?.innerText ?? ''"));
        found.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the text of an element holds `text`.
    #[track_caller]
    pub fn shows(&self, css: &str, text: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.text(css);
            if found.contains(text) {
                return;
            }
            assert!(
                Instant::now() < end,
                "{css} never showed {text:?}, but {found:?} at {}: {:#?}",
                self.path(),
                self.logged()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the page at this path is open.
    #[track_caller]
    pub fn comes_to(&self, path: &str) {
        let end = Instant::now() + PATIENCE;
        while self.path() != path {
            assert!(
                Instant::now() < end,
                "it never came to {path}, but to {}: {:#?}",
                self.path(),
                self.logged()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Clicks on what can be seen of `css`.
    #[track_caller]
    pub fn click(&self, css: &str) {
        self.run(async { self.element(css).await.click().await });
    }

    /// Writes into a field.
    #[track_caller]
    pub fn write(&self, css: &str, text: &str) {
        self.run(async {
            let field = self.element(css).await;
            field.clear().await?;
            field.send_keys(text).await
        });
    }

    /// Presses keys where the focus is.
    #[track_caller]
    pub fn press(&self, keys: &str) {
        self.run(async { self.client().active_element().await?.send_keys(keys).await });
    }

    /// As a screen that is so wide shows it.
    #[track_caller]
    pub fn resize(&self, width: u32) {
        self.resize_to(width, 800);
    }

    fn resize_to(&self, width: u32, height: u64) {
        self.vendor(
            "goog/cdp/execute",
            &json!({
                "cmd": "Emulation.setDeviceMetricsOverride",
                "params": {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false},
            }),
        );
    }

    /// A picture of the whole page, in the directory that `TOLLGATE_TEST_SCREENSHOTS` names, if it does: for people to look at.
    #[track_caller]
    pub fn picture(&self, name: &str, width: u32) {
        let Ok(directory) = std::env::var("TOLLGATE_TEST_SCREENSHOTS") else { return };
        let height = self.script("return document.documentElement.scrollHeight").as_u64().unwrap_or(800);
        self.resize_to(width, height);
        let png = self.run(self.client().screenshot());
        std::fs::write(format!("{directory}/{name}-{width}.png"), png).unwrap();
        self.resize(width);
    }

    /// What the browser complained about since it was last asked: scripts that failed, what the policy of a page forbids,
    /// answers that are errors.
    pub fn logged(&self) -> Vec<String> {
        let entries = self.vendor("se/log", &json!({"type": "browser"}));
        let entries = entries.as_array().cloned().unwrap_or_default();
        let complaints =
            entries.iter().filter(|entry| matches!(entry["level"].as_str(), Some("SEVERE" | "WARNING")));
        complaints.map(|entry| entry["message"].to_string()).collect()
    }

    async fn element(&self, css: &str) -> Element {
        let found = self.client().wait().at_most(PATIENCE).for_element(Locator::Css(css)).await;
        found.unwrap_or_else(|error| panic!("no {css}: {error}"))
    }

    #[track_caller]
    fn vendor(&self, path: &'static str, body: &Value) -> Value {
        self.run(self.client().issue_cmd(Vendor { path, body: body.to_string() }))
    }

    fn client(&self) -> &Client {
        self.client.as_ref().unwrap()
    }

    #[track_caller]
    fn run<T, E: std::fmt::Display>(&self, action: impl Future<Output = Result<T, E>>) -> T {
        self.runtime.block_on(action).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser outlives a driver that is killed.
        if let Some(client) = self.client.take() {
            let _gone = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, client.close()).await });
        }
    }
}

/// What Chromium's driver can do beside what the standard says.
#[derive(Debug)]
struct Vendor {
    path: &'static str,
    body: String,
}

impl WebDriverCompatibleCommand for Vendor {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.body.clone()))
    }
}

/// A driver, and where it listens.
fn driver() -> Option<(Running, u16)> {
    let mut driver = program("chromedriver", "chromium-driver")
        .arg("--port=0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let stdout = driver.stdout.take().unwrap();
    let driver = Running(driver);
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let port = lines
        .find_map(|line| line.split("successfully on port ").nth(1)?.trim_end_matches('.').parse().ok())?;
    // It must not stand still because nobody reads what it says.
    thread::spawn(move || lines.for_each(drop));
    Some((driver, port))
}
