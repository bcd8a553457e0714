//! The kind of a value, parsed from the attributes of a field, and the constant of `config::settings::Kind` for it.
//!
//! | attribute | value |
//! | --- | --- |
//! | `size = "1KiB..=1MiB"` | a number of bytes |
//! | `count = "1..=100"` | a whole number |
//! | `duration = "1ms..=366d"` | a duration |
//! | `share = "0..=50"`, `share = "0<..=100"` | a percentage; `0<` excludes 0% |
//! | `text = FIELD` | text of this form of `settings::text` |
//! | `word("auto", …)` | one of these words |
//! | `boolean`, `file`, `any` | `true` or `false`; the path of a file; any value |
//! | `mapping`, `mapping(TYPE)` | a mapping, declared by the field's type, or by `TYPE` |
//! | `list(KIND, Unique)` | a list; the second argument is a variant of `settings::Items` |
//! | `names(FORM, KIND, Any)` | names of this form, chosen by the operator, each with a value |
//! | `either(KIND, …)` | one of several kinds |
//! | `of(TYPE)` | the `Value::KIND` of `TYPE` |

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Ident, LitStr, Result, Token, Type, parse::ParseStream};

pub(crate) enum Kind {
    Size(u64, u64),
    Count(u64, u64),
    /// Milliseconds.
    Duration(u64, u64),
    /// Whether 0% is allowed, and the highest percentage.
    Share(bool, u8),
    Text(Ident),
    Word(Vec<LitStr>),
    Boolean,
    File,
    Any,
    /// `None`: the field's type declares it.
    Mapping(Option<Box<Type>>),
    List(Box<Kind>, Ident),
    Names(Ident, Box<Kind>, Ident),
    Either(Vec<Kind>),
    Of(Box<Type>),
}

impl Kind {
    /// Parses the arguments after `name`.
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

    /// Adds the types of all mappings that such a value may be or may contain. `own`: the type of the field.
    pub(crate) fn mappings<'k>(&'k self, own: &'k Type, found: &mut Vec<&'k Type>) {
        match self {
            Self::Mapping(of) => found.push(of.as_deref().unwrap_or(own)),
            Self::List(item, _) => item.mappings(own, found),
            Self::Names(_, value, _) => value.mappings(own, found),
            Self::Either(kinds) => kinds.iter().for_each(|kind| kind.mappings(own, found)),
            _ => {}
        }
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

/// Skips the comma before the next argument.
fn comma(input: ParseStream<'_>) -> Result<()> {
    if input.is_empty() { Ok(()) } else { input.parse::<Token![,]>().map(drop) }
}

fn number(text: &str) -> Option<u64> {
    text.replace('_', "").parse().ok()
}

fn size(text: &str) -> Option<u64> {
    scaled(
        text,
        &[("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1)],
    )
}

fn millis(text: &str) -> Option<u64> {
    scaled(text, &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("", 1)])
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    units.iter().find_map(|(unit, factor)| number(text.strip_suffix(unit)?)?.checked_mul(*factor))
}

#[cfg(test)]
mod tests {
    use syn::parse::Parser;

    use super::*;

    fn kind(name: &str, arguments: &str) -> Result<Kind> {
        (|input: ParseStream<'_>| Kind::parse(name, input)).parse_str(arguments)
    }

    #[test]
    fn ranges_have_units() {
        let size = |range: &str| match kind("size", &format!("= {range:?}")) {
            Ok(Kind::Size(least, most)) => Some((least, most)),
            _ => None,
        };
        assert_eq!(size("0..=100"), Some((0, 100)));
        assert_eq!(size("1KiB..=16TiB"), Some((1 << 10, 16 << 40)));
        assert_eq!(size("1MiB..=2GiB"), Some((1 << 20, 2 << 30)));
        let duration = |range: &str| match kind("duration", &format!("= {range:?}")) {
            Ok(Kind::Duration(least, most)) => Some((least, most)),
            _ => None,
        };
        assert_eq!(duration("1ms..=2s"), Some((1, 2_000)));
        assert_eq!(duration("3m..=4h"), Some((180_000, 14_400_000)));
        assert_eq!(duration("0..=366d"), Some((0, 366 * 86_400_000)));
        assert!(matches!(kind("count", r#"= "1..=10_000""#), Ok(Kind::Count(1, 10_000))));
        for wrong in
            ["", "1", "1..10", "1KB..=2KB", "1 KiB..=2KiB", "-1..=1", "0..=99999999999TiB", "1s..=2s"]
        {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_share_may_exclude_zero() {
        assert!(matches!(kind("share", r#"= "0..=50""#), Ok(Kind::Share(true, 50))));
        assert!(matches!(kind("share", r#"= "0<..=100""#), Ok(Kind::Share(false, 100))));
        assert!(kind("share", r#"= "50""#).is_err());
    }

    #[test]
    fn kinds_are_nested() {
        let Ok(Kind::List(item, items)) = kind("list", "(either(text = FIELD, size = \"1..=2KiB\"), Unique)")
        else {
            panic!("not a list");
        };
        assert_eq!(items, "Unique");
        let Kind::Either(kinds) = *item else { panic!("not a choice") };
        assert!(matches!(&kinds[..], [Kind::Text(form), Kind::Size(1, 2048)] if form == "FIELD"));
        assert!(matches!(kind("names", "(RESOURCE, boolean, Any)"), Ok(Kind::Names(..))));
        assert!(matches!(kind("word", r#"("auto", "off")"#), Ok(Kind::Word(words)) if words.len() == 2));
        assert!(kind("list", "(boolean)").is_err() && kind("unknown", "").is_err());
    }
}
