//! What the bodies of requests say, and which of them are refused.

mod against_parsers;
mod ask_for_usage;
mod bounds;
mod content;
mod forms_against_parsers;
mod members;
mod values;

use tollgate::{json_path::JsonPath, request_values::AskedMembers};

fn path(text: &str) -> JsonPath {
    JsonPath::parse(text).unwrap()
}

fn asking(paths: &[&str]) -> AskedMembers {
    AskedMembers::new(&paths.iter().map(|text| path(text)).collect::<Vec<_>>())
}
