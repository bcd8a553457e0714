//! The frame around every page: document head, navigation, security headers.

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::FromRequestParts,
    response::{IntoResponse, Response},
};
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_FRAME_OPTIONS},
    request::Parts,
};
use maud::{DOCTYPE, Markup, html};

use super::{
    super::{context::HandlerContext, problem::Problem, session},
    assets, components,
    format::escape_invisible,
};
use crate::telemetry::{diagnostics::ActiveOutage, time::rfc3339};

/// Pages show text chosen by clients, so nothing is loaded from elsewhere, no inline code runs, and no other page may
/// frame them.
const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Outages shown by name; the others are only counted.
const SHOWN_OUTAGES: usize = 5;

/// The cookie that overrides the system's theme.
const THEME_COOKIE: &str = "tollgate_theme";

/// An entry of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NavItem {
    Overview,
    Incidents,
    Blocked,
    Bans,
    Keys,
    Customers,
    Usage,
    History,
    Upstreams,
    Policies,
    Explain,
    Audit,
}

impl NavItem {
    /// In display order: item, path, name, and the SVG path of its icon.
    const ALL: [(Self, &'static str, &'static str, &'static str); 12] = [
        (Self::Overview, "/", "Overview", "M2 13.5h12M4 11V7.5M8 11V3M12 11V5.5"),
        (Self::Incidents, "/incidents", "Incidents", "M8 2.2L14.2 13.3H1.8zM8 6.4v3.2M8 11.4h.01"),
        (Self::Blocked, "/blocked", "Blocked", "M8 1.8l5 1.9v4c0 3.2-2.1 5.4-5 6.5-2.9-1.1-5-3.3-5-6.5v-4z"),
        (Self::Bans, "/bans", "Bans", "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM3.8 3.8l8.4 8.4"),
        (Self::Keys, "/keys", "Keys", "M5.5 7.5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM7.7 8.3L13.5 2.5M11 5l2 2"),
        (
            Self::Customers,
            "/customers",
            "Customers",
            "M6 2.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5zM1.8 13.5c.3-2.6 2-4 4.2-4s3.9 1.4 4.2 4M11 3.2a2.2 2.2 0 0 1 0 4.1M12.3 10c1.1.5 1.8 1.7 2 3.5",
        ),
        (Self::Usage, "/usage", "Usage", "M2.5 13.5v-4h2.5v4M6.8 13.5v-7h2.5v7M11 13.5v-10h2.5v10"),
        (Self::History, "/history", "History", "M8 2a6 6 0 1 1-5.6 3.8M2 2.8v3.2h3.2M8 5v3.2l2.2 1.5"),
        (
            Self::Upstreams,
            "/upstreams",
            "Upstreams",
            "M2.5 3h11v3.5h-11zM2.5 9.5h11V13h-11zM5 4.8h.01M5 11.3h.01",
        ),
        (
            Self::Policies,
            "/policies",
            "Policies",
            "M2.5 4.5h6M12 4.5h1.5M2.5 11.5h1.5M8 11.5h5.5M10.2 2.8v3.4M6 9.8v3.4",
        ),
        (
            Self::Explain,
            "/explain",
            "Explain",
            "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.4 10.4l3.1 3.1",
        ),
        (Self::Audit, "/audit", "Audit", "M3 3.5h10M3 8h10M3 12.5h6"),
    ];
}

/// The content of one page, without its frame.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) title: String,
    pub(super) body: Markup,
}

/// The values that the frame of a page shows, from the request and the state.
#[derive(Debug, Clone)]
pub(in crate::admin) struct PageFrame {
    /// `light` or `dark`; `None`: the system's.
    theme: Option<&'static str>,
    /// Whether a token is configured; if so, the page offers to sign out.
    can_sign_out: bool,
    now: i64,
    outages: Vec<ActiveOutage>,
}

impl FromRequestParts<Arc<HandlerContext>> for PageFrame {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        context: &Arc<HandlerContext>,
    ) -> Result<Self, Infallible> {
        let theme = match session::cookie(&parts.headers, THEME_COOKIE) {
            Some("light") => Some("light"),
            Some("dark") => Some("dark"),
            _ => None,
        };
        let can_sign_out = context.state.token.is_some();
        let outages = context.state.warnings.outages();
        Ok(Self { theme, can_sign_out, now: context.state.clock.now(), outages })
    }
}

impl PageFrame {
    /// The page in its frame, or the problem as a page.
    pub(super) fn render(self, item: NavItem, page: Result<Page, Problem>) -> Response {
        match page {
            Ok(page) => self.with_navigation(Some(item), &page).into_response(),
            Err(problem) => {
                (problem.status(), self.with_navigation(Some(item), &problem_page(&problem))).into_response()
            }
        }
    }

    /// The page for a path that does not exist.
    pub(in crate::admin) fn not_found(self, problem: &Problem) -> Response {
        let page = self.with_navigation(None, &problem_page(problem));
        with_security_headers((problem.status(), page).into_response())
    }

    /// A page without the navigation, shown before signing in.
    pub(super) fn without_navigation(self, page: &Page) -> Markup {
        self.document(&page.title, &html! { main #main.bare tabindex="-1" { (page.body) } })
    }

    fn with_navigation(self, current: Option<NavItem>, page: &Page) -> Markup {
        let body = html! {
            a.skip href="#main" { "Skip to content" }
            header.side {
                a.brand href="/" {
                    img src=(assets::url("icon.svg")) alt="" width="26" height="26";
                    "Tollgate"
                }
                nav aria-label="Pages" {
                    ul {
                        @for (item, href, name, icon) in NavItem::ALL {
                            li {
                                a href=(href) aria-current=[(Some(item) == current).then_some("page")] {
                                    svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" {
                                        path d=(icon) fill="none" stroke="currentColor" stroke-width="1.4"
                                            stroke-linecap="round" stroke-linejoin="round" {}
                                    }
                                    (name)
                                }
                            }
                        }
                    }
                }
                div.foot {
                    p.live.js id="live" { span.dot aria-hidden="true" {} span { "Connecting" } }
                    div.controls {
                        button.ghost.js #theme type="button" { "Theme: " (self.theme.unwrap_or("auto")) }
                        @if self.can_sign_out { button.ghost.js #logout type="button" { "Sign out" } }
                    }
                    p.faint.version { "Version " (env!("CARGO_PKG_VERSION")) }
                }
            }
            main #main tabindex="-1" data-live { (outages(&self.outages, self.now)) (page.body) }
        };
        self.document(&page.title, &html! { div.app { (body) } })
    }

    fn document(self, title: &str, body: &Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" data-theme=[self.theme] {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (title) " · Tollgate" }
                    link rel="icon" href=(assets::url("icon.svg")) type="image/svg+xml";
                    link rel="stylesheet" href=(assets::url("page.css"));
                    script type="module" src=(assets::url("page.js")) {}
                }
                body data-now=(self.now / 1_000) {
                    (body)
                    div #said role="status" aria-live="polite" {}
                }
            }
        }
    }
}

/// The outages, in red at the top of every page.
fn outages(outages: &[ActiveOutage], now: i64) -> Markup {
    html! {
        @if !outages.is_empty() {
            section.notice.outages data-key="outages" aria-labelledby="outages" {
                h2 #outages { @if outages.len() == 1 { "Outage" } @else { (outages.len()) " outages" } }
                ul {
                    @for outage in &outages[..outages.len().min(SHOWN_OUTAGES)] {
                        li { (escape_invisible(&outage.text)) span.since { "began " (components::time_ago(&rfc3339(outage.since), now)) } }
                    }
                    @if outages.len() > SHOWN_OUTAGES { li { "and " (outages.len() - SHOWN_OUTAGES) " more" } }
                }
            }
        }
    }
}

/// Adds the headers that keep pages from being framed, scripted, or leaked as referrers.
pub(super) fn with_security_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(CSP));
    // Paths of pages contain client addresses and user names.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    response
}

fn problem_page(problem: &Problem) -> Page {
    let title = match problem.status() {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::BAD_REQUEST => "Invalid request",
        StatusCode::SERVICE_UNAVAILABLE => "Temporarily unavailable",
        _ => "Something went wrong",
    };
    let body = html! {
        div.head { h1 { (title) } }
        div.card.pad role="alert" { p { (escape_invisible(problem.detail())) } p { a href="/" { "Back to the overview" } } }
    };
    Page { title: title.to_owned(), body }
}
