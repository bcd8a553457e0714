//! What a value is, as the attributes say it, and the `Kind` of the crate for it.
//!
//! | attribute | value |
//! | --- | --- |
//! | `size = "1KiB..=1MiB"` | bytes |
//! | `count = "1..=100"` | a whole number |
//! | `duration = "1ms..=366d"` | a time |
//! | `share = "0..=50"`, `share = "0<..=100"` | percent; `<`: more than that |
//! | `text = FIELD` | text of a form in `settings::text` |
//! | `word("auto", …)` | one of these words |
//! | `boolean`, `file`, `any` | `true` or `false`; the path of a file; anything |
//! | `mapping`, `mapping(TYPE)` | a mapping: of the field's type, or of this one |
//! | `list(KIND, Unique)` | a list |
//! | `names(FORM, KIND, Any)` | names that the operator chooses, each with a value |
//! | `either(KIND, …)` | one of several |
//! | `of(TYPE)` | what this type says |

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Ident, LitStr, Result, Token, Type, parse::ParseStream};

use crate::attributes::comma;

pub(crate) enum Kind {
    Size(u64, u64),
    Count(u64, u64),
    /// Milliseconds.
    Duration(u64, u64),
    /// Whether 0% is a value, and the most percent.
    Share(bool, u8),
    Text(Ident),
    Word(Vec<LitStr>),
    Boolean,
    File,
    Any,
    /// `None`: of the field's type.
    Mapping(Option<Box<Type>>),
    List(Box<Kind>, Ident),
    Names(Ident, Box<Kind>, Ident),
    Either(Vec<Kind>),
    Of(Box<Type>),
}

impl Kind {
    /// Parses what follows `name`.
    pub(crate) fn parse(name: &str, input: ParseStream<'_>) -> Result<Self> {
        let range = |scale: fn(&str) -> Option<u64>| {
            input.parse::<Token![=]>()?;
            let text: LitStr = input.parse()?;
            let written = text.value();
            let ends =
                written.split_once("..=").and_then(|(least, most)| Some((scale(least)?, scale(most)?)));
            ends.ok_or_else(|| syn::Error::new(text.span(), "expected a range such as 1..=100"))
        };
        let nested = || {
            let content;
            syn::parenthesized!(content in input);
            Ok::<_, syn::Error>(content)
        };
        Ok(match name {
            "size" => range(size).map(|(least, most)| Self::Size(least, most))?,
            "count" => range(number).map(|(least, most)| Self::Count(least, most))?,
            "duration" => range(millis).map(|(least, most)| Self::Duration(least, most))?,
            "share" => {
                let (least, most) = range(|text| {
                    number(text.trim_end_matches('<')).map(|n| n + u64::from(text.ends_with('<')))
                })?;
                Self::Share(least == 0, u8::try_from(most).unwrap_or(100))
            }
            "text" => {
                input.parse::<Token![=]>()?;
                Self::Text(input.parse()?)
            }
            "boolean" => Self::Boolean,
            "file" => Self::File,
            "any" => Self::Any,
            "mapping" if input.peek(syn::token::Paren) => Self::Mapping(Some(nested()?.parse()?)),
            "mapping" => Self::Mapping(None),
            "of" => Self::Of(nested()?.parse()?),
            "word" => {
                let words = nested()?;
                let words =
                    words.parse_terminated(|input: ParseStream<'_>| input.parse::<LitStr>(), Token![,])?;
                Self::Word(words.into_iter().collect())
            }
            "list" => {
                let content = nested()?;
                let item = Self::next(&content)?;
                comma(&content)?;
                Self::List(Box::new(item), content.parse()?)
            }
            "names" => {
                let content = nested()?;
                let form = content.parse()?;
                comma(&content)?;
                let value = Self::next(&content)?;
                comma(&content)?;
                Self::Names(form, Box::new(value), content.parse()?)
            }
            "either" => {
                let content = nested()?;
                let mut kinds = Vec::new();
                while !content.is_empty() {
                    kinds.push(Self::next(&content)?);
                    comma(&content)?;
                }
                Self::Either(kinds)
            }
            _ => return Err(input.error(format!("`{name}` is not known here"))),
        })
    }

    fn next(input: ParseStream<'_>) -> Result<Self> {
        let name: Ident = input.parse()?;
        Self::parse(&name.to_string(), input)
    }

    /// The constant of the crate. `own`: the type of the field.
    pub(crate) fn constant(&self, own: &Type) -> TokenStream {
        let kind = quote!(crate::config::settings::Kind);
        match self {
            Self::Size(least, most) => quote!(#kind::Size(#least, #most)),
            Self::Count(least, most) => quote!(#kind::Count(#least, #most)),
            Self::Duration(least, most) => quote!(#kind::Duration(#least, #most)),
            Self::Share(from_zero, most) => quote!(#kind::Percentage(#from_zero, #most)),
            Self::Text(form) => quote!(#kind::Text(&crate::config::settings::text::#form)),
            Self::Word(words) => quote!(#kind::Word(&[#(#words),*])),
            Self::Boolean => quote!(#kind::Boolean),
            Self::File => quote!(#kind::File),
            Self::Any => quote!(#kind::Any),
            Self::Mapping(of) => {
                let of = of.as_deref().unwrap_or(own);
                quote!(#kind::Mapping(<#of as crate::config::settings::Settings>::mapping))
            }
            Self::List(item, items) => {
                let item = item.constant(own);
                quote!(#kind::List(&#item, crate::config::settings::Items::#items))
            }
            Self::Names(form, value, items) => {
                let value = value.constant(own);
                quote!(#kind::Names(&crate::config::settings::text::#form, &#value, crate::config::settings::Items::#items))
            }
            Self::Either(kinds) => {
                let kinds = kinds.iter().map(|kind| kind.constant(own));
                quote!(#kind::Either(&[#(#kinds),*]))
            }
            Self::Of(of) => quote!(<#of as crate::config::settings::Value>::KIND),
        }
    }
}

fn number(text: &str) -> Option<u64> {
    text.replace('_', "").parse().ok()
}

fn size(text: &str) -> Option<u64> {
    scaled(text, &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1)])
}

fn millis(text: &str) -> Option<u64> {
    scaled(text, &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("", 1)])
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    units.iter().find_map(|(unit, factor)| Some(number(text.strip_suffix(unit)?)? * factor))
}
