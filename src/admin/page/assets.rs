//! What the pages are drawn with. It is in the binary, and browsers keep it for as long as it is the same.

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
    /// Of the content, in the address: another content has another.
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

/// The address of an asset by its name.
pub(super) fn address(name: &str) -> String {
    let hash = ASSETS.iter().find(|asset| asset.name == name).map_or("", |asset| &asset.hash);
    format!("/assets/{name}?v={hash}")
}

pub(super) async fn serve(Path(name): Path<String>, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let asset = ASSETS.iter().find(|asset| asset.name == name);
    let asset = asset.ok_or_else(|| Problem::not_found("there is no such asset"))?;
    // Asked for by another hash, it is for a page of another version: not to be kept under that name.
    let is_this = query.as_deref().and_then(|query| query.strip_prefix("v=")) == Some(asset.hash.as_str());
    let keep = if is_this { "public, max-age=31536000, immutable" } else { "no-cache" };
    Ok(([(CONTENT_TYPE, asset.content_type), (CACHE_CONTROL, keep)], asset.content).into_response())
}
