//! Declares a setting of `proxy.yaml` once, at the field that holds it.
//!
//! [`Settings`] makes of a struct a mapping of the file: its description for the reference, the JSON Schema and
//! `explain-setting`; the code that reads it, with an error for each value that is wrong; `Default`; and `Serialize`.
//! [`Word`] makes of an enum the words that a setting may have. `docs` of the attributes: `attributes.rs`.

mod attributes;
mod kind;
mod settings;
mod word;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// A mapping of the file. The doc comments of the struct and of its fields are the descriptions that users read.
#[proc_macro_derive(Settings, attributes(settings, setting))]
pub fn settings(input: TokenStream) -> TokenStream {
    settings::derive(&parse_macro_input!(input as DeriveInput))
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// One of a few words. A variant is written in snake_case, or as `#[word("…")]` says.
#[proc_macro_derive(Word, attributes(word))]
pub fn word(input: TokenStream) -> TokenStream {
    word::derive(&parse_macro_input!(input as DeriveInput))
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
