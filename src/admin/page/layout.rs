//! What is around every page.

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::FromRequestParts,
    response::{IntoResponse, Response},
};
use http::{StatusCode, request::Parts};
use maud::{DOCTYPE, Markup, html};

use super::{
    super::{context::HandlerContext, problem::Problem, session},
    assets, headers,
};

/// The cookie of a browser that wants another theme than the system's.
const THEME: &str = "tollgate_theme";

/// Where a page is in the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NavItem {
    Overview,
    Blocked,
    Bans,
    Policies,
    Explain,
    Audit,
}

impl NavItem {
    /// In order; with the outline of an icon.
    const ALL: [(Self, &'static str, &'static str, &'static str); 6] = [
        (Self::Overview, "/", "Overview", "M2 13.5h12M4 11V7.5M8 11V3M12 11V5.5"),
        (Self::Blocked, "/blocked", "Blocked", "M8 1.8l5 1.9v4c0 3.2-2.1 5.4-5 6.5-2.9-1.1-5-3.3-5-6.5v-4z"),
        (Self::Bans, "/bans", "Bans", "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM3.8 3.8l8.4 8.4"),
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

/// One page: what is its own.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) title: String,
    pub(super) body: Markup,
}

/// How the one who asks sees pages.
#[derive(Debug, Clone, Copy)]
pub(in crate::admin) struct PageFrame {
    /// `light` or `dark`; `None`: as the system.
    theme: Option<&'static str>,
    /// There is a token, so there is a way out.
    is_signed_in: bool,
    now: i64,
}

impl FromRequestParts<Arc<HandlerContext>> for PageFrame {
    type Rejection = Infallible;

    async fn from_request_parts(
        components: &mut Parts,
        context: &Arc<HandlerContext>,
    ) -> Result<Self, Infallible> {
        let theme = match session::cookie(&components.headers, THEME) {
            Some("light") => Some("light"),
            Some("dark") => Some("dark"),
            _ => None,
        };
        let is_signed_in = context.state.token.is_some();
        Ok(Self { theme, is_signed_in, now: context.state.clock.now() })
    }
}

impl PageFrame {
    /// The page in its surroundings, or what went wrong in them.
    pub(super) fn render(self, place: NavItem, page: Result<Page, Problem>) -> Response {
        match page {
            Ok(page) => self.framed(Some(place), &page).into_response(),
            Err(problem) => (problem.status(), self.framed(Some(place), &told(&problem))).into_response(),
        }
    }

    /// For what is at no path.
    pub(in crate::admin) fn lost(self, problem: &Problem) -> Response {
        let page = self.framed(None, &told(problem));
        headers::marked((problem.status(), page).into_response())
    }

    /// A page without the navigation, for whoever is not let in yet.
    pub(super) fn bare(self, page: &Page) -> Markup {
        self.document(&page.title, &html! { main #main.bare tabindex="-1" { (page.body) } })
    }

    fn framed(self, place: Option<NavItem>, page: &Page) -> Markup {
        let body = html! {
            a.skip href="#main" { "Skip to the content" }
            header.side {
                a.brand href="/" {
                    img src=(assets::address("icon.svg")) alt="" width="26" height="26";
                    "Tollgate"
                }
                nav aria-label="Pages" {
                    ul {
                        @for (at, href, name, icon) in NavItem::ALL {
                            li {
                                a href=(href) aria-current=[(Some(at) == place).then_some("page")] {
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
                        @if self.is_signed_in { button.ghost.js #logout type="button" { "Sign out" } }
                    }
                    p.faint.version { "Version " (env!("CARGO_PKG_VERSION")) }
                }
            }
            main #main tabindex="-1" data-live { (page.body) }
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
                    link rel="icon" href=(assets::address("icon.svg")) type="image/svg+xml";
                    link rel="stylesheet" href=(assets::address("page.css"));
                    script type="module" src=(assets::address("page.js")) {}
                }
                body data-now=(self.now / 1_000) {
                    (body)
                    div #said role="status" aria-live="polite" {}
                }
            }
        }
    }
}

fn told(problem: &Problem) -> Page {
    let title = match problem.status() {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::BAD_REQUEST => "That can't be read",
        StatusCode::SERVICE_UNAVAILABLE => "Not available now",
        _ => "That did not work",
    };
    let body = html! {
        div.head { h1 { (title) } }
        div.card.pad role="alert" { p { (problem.detail()) } p { a href="/" { "Back to the overview" } } }
    };
    Page { title: title.to_owned(), body }
}
