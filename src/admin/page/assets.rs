//! Style sheet, script and icon. They are part of the binary; browsers cache each until its content changes.

use std::sync::LazyLock;

use axum::{
    extract::{Path, RawQuery},
    response::{IntoResponse, Response},
};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use sha2::{Digest, Sha256};

use super::super::problem::Problem;

struct Asset {
    name: &'static str,
    content_type: &'static str,
    content: &'static str,
    /// Hash of the content. It is part of the URL, so new content gets a new URL.
    hash: String,
}

static ASSETS: LazyLock<[Asset; 3]> = LazyLock::new(|| {
    [
        asset("page.css", "text/css; charset=utf-8", include_str!("assets/page.css")),
        asset("page.js", "text/javascript; charset=utf-8", include_str!("assets/page.js")),
        asset("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
    ]
});

fn asset(name: &'static str, content_type: &'static str, content: &'static str) -> Asset {
    let hash = Sha256::digest(content.as_bytes());
    let hash = hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    Asset { name, content_type, content, hash }
}

/// The URL of an asset.
pub(super) fn url(name: &str) -> String {
    let hash = ASSETS.iter().find(|asset| asset.name == name).map_or("", |asset| &asset.hash);
    format!("/assets/{name}?v={hash}")
}

pub(super) async fn serve(Path(name): Path<String>, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let asset = ASSETS.iter().find(|asset| asset.name == name);
    let asset = asset.ok_or_else(|| Problem::not_found("this asset does not exist"))?;
    // With another hash, the request comes from a page of another version: its URL must not be cached with this
    // content.
    let is_current = query.as_deref().and_then(|query| query.strip_prefix("v=")) == Some(asset.hash.as_str());
    let cache_control = if is_current { "public, max-age=31536000, immutable" } else { "no-cache" };
    Ok(([(CONTENT_TYPE, asset.content_type), (CACHE_CONTROL, cache_control)], asset.content).into_response())
}
