//! Parses `#[settings(…)]` of a struct, and `#[setting(…)]` of a field. The documentation of the crate has examples.

use syn::{
    Attribute, Expr, ExprLit, Ident, Lit, LitStr, Meta, Path, Result, Token, Type, meta::ParseNestedMeta,
    parse::Parse, punctuated::Punctuated,
};

use crate::kind::Kind;

/// `#[settings(…)]`
#[derive(Default)]
pub(crate) struct MappingAttributes {
    /// `page = "limits.md#memory"`: the page of the guide.
    pub(crate) page: Option<LitStr>,
    /// `sample = "cookie: tg_endpoint"`: a small valid mapping, without the braces.
    pub(crate) sample: Option<LitStr>,
    /// `rules(With("cert", "key"), …)`: rules about several settings, variants of `settings::Rule`.
    pub(crate) rules: Vec<Expr>,
    /// `such_as = "health: { path: VALUE }"`: the line to write where a single value stands in place of the mapping. It may
    /// also be a function from that value to the line.
    pub(crate) such_as: Option<Expr>,
    /// `foreign = "client_limits"`: the section of `foreign_names.txt` with the names that other proxies have.
    pub(crate) foreign: Option<LitStr>,
    /// `written`: the struct holds what stands in the file, and other code makes the configuration of it. It has
    /// neither `Default` nor `Serialize`.
    pub(crate) written: bool,
    /// `of = TYPE`: this type, which other code makes of `written`, has the same settings.
    pub(crate) of: Option<Type>,
    /// `check = path`: checks several settings together, and reports errors.
    pub(crate) check: Option<Path>,
    /// `last = TYPE`: the settings of this type follow the others.
    pub(crate) last: Option<Type>,
    /// `unread`: other code reads it; it derives `Serialize` itself.
    pub(crate) unread: bool,
    /// `constructor`: generates `new`, which takes the required settings.
    pub(crate) constructor: bool,
}

impl MappingAttributes {
    pub(crate) fn of(attributes: &[Attribute]) -> Result<Self> {
        let mut found = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("settings")) {
            attribute.parse_nested_meta(|meta| {
                match name(&meta)?.as_str() {
                    "page" => found.page = Some(meta.value()?.parse()?),
                    "sample" => found.sample = Some(meta.value()?.parse()?),
                    "such_as" => found.such_as = Some(meta.value()?.parse()?),
                    "foreign" => found.foreign = Some(meta.value()?.parse()?),
                    "written" => found.written = true,
                    "of" => found.of = Some(meta.value()?.parse()?),
                    "check" => found.check = Some(meta.value()?.parse()?),
                    "last" => found.last = Some(meta.value()?.parse()?),
                    "unread" => found.unread = true,
                    "constructor" => found.constructor = true,
                    "rules" => found.rules = in_parentheses::<Expr>(&meta)?,
                    _ => return Err(meta.error("unknown")),
                }
                Ok(())
            })?;
        }
        Ok(found)
    }
}

/// `#[setting(…)]`
#[derive(Default)]
pub(crate) struct FieldAttributes {
    /// `key = "for"`: the key, if the field has another name. One that ends with `*` is any key with this beginning.
    pub(crate) key: Option<LitStr>,
    /// The kind of value: see [`Kind`]. `None`: the `Value::KIND` of the field's type.
    pub(crate) kind: Option<Kind>,
    /// `default = "32KiB"`: the default, as the file would write it.
    pub(crate) default: Option<LitStr>,
    /// `value = EXPR`: the default in Rust, for values that are not parsed from a single value.
    pub(crate) value: Option<Expr>,
    /// `unset = "no cookie"`: the default in words.
    pub(crate) unset: Option<LitStr>,
    /// `missing = "such as `endpoints: […]`"`: the setting is required, and this is the help if it is missing.
    pub(crate) missing: Option<Expr>,
    /// `example = "64KiB"`
    pub(crate) example: Option<LitStr>,
    /// `beside = "path: /healthz"`: other settings that the example needs, without braces.
    pub(crate) beside: Option<LitStr>,
    /// `see = ["store.redis"]`: the paths of related settings.
    pub(crate) see: Option<Expr>,
    /// `parse = path`: reads a single value.
    pub(crate) parse: Option<Path>,
    /// `read = path`: reads any value from a cursor, and reports its errors.
    pub(crate) read: Option<Path>,
    /// `shown = path`: serializes the value, as serde's `serialize_with`.
    pub(crate) shown: Option<Path>,
    /// `flatten`: the settings of the field's type are in the same mapping.
    pub(crate) flatten: bool,
    /// `omit_if = path`: the value is not serialized if this function returns true.
    pub(crate) omit_if: Option<Path>,
    /// `before = TYPE`: the settings of this type stand before it.
    pub(crate) before: Option<Type>,
    /// `inherited = "…"`: what applies without each setting that stands `before`, in place of its own words.
    pub(crate) inherited: Option<LitStr>,
    /// `skip`: it is not a setting.
    pub(crate) skip: bool,
    /// `restart`: a change takes effect when Tollgate starts again.
    pub(crate) restart: bool,
    /// `flags(of_the_instance, confidential)`: see the methods of `Setting`.
    pub(crate) flags: Vec<Ident>,
}

impl FieldAttributes {
    pub(crate) fn of(attributes: &[Attribute]) -> Result<Self> {
        let mut found = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("setting")) {
            attribute.parse_nested_meta(|meta| {
                match name(&meta)?.as_str() {
                    "key" => found.key = Some(meta.value()?.parse()?),
                    "default" => found.default = Some(meta.value()?.parse()?),
                    "value" => found.value = Some(meta.value()?.parse()?),
                    "unset" => found.unset = Some(meta.value()?.parse()?),
                    "missing" => found.missing = Some(meta.value()?.parse()?),
                    "example" => found.example = Some(meta.value()?.parse()?),
                    "beside" => found.beside = Some(meta.value()?.parse()?),
                    "see" => found.see = Some(meta.value()?.parse()?),
                    "parse" => found.parse = Some(meta.value()?.parse()?),
                    "read" => found.read = Some(meta.value()?.parse()?),
                    "shown" => found.shown = Some(meta.value()?.parse()?),
                    "omit_if" => found.omit_if = Some(meta.value()?.parse()?),
                    "before" => found.before = Some(meta.value()?.parse()?),
                    "inherited" => found.inherited = Some(meta.value()?.parse()?),
                    "skip" => found.skip = true,
                    "restart" => found.restart = true,
                    "flatten" => found.flatten = true,
                    "flags" => found.flags = in_parentheses::<Ident>(&meta)?,
                    kind => found.kind = Some(Kind::parse(kind, meta.input)?),
                }
                Ok(())
            })?;
        }
        Ok(found)
    }
}

fn name(meta: &ParseNestedMeta<'_>) -> Result<String> {
    meta.path.get_ident().map(Ident::to_string).ok_or_else(|| meta.error("expected a word"))
}

fn in_parentheses<T: Parse>(meta: &ParseNestedMeta<'_>) -> Result<Vec<T>> {
    let content;
    syn::parenthesized!(content in meta.input);
    Ok(Punctuated::<T, Token![,]>::parse_terminated(&content)?.into_iter().collect())
}

/// The first paragraph of the doc comment, on one line.
pub(crate) fn doc(attributes: &[Attribute]) -> String {
    let line = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    };
    let lines = attributes.iter().filter_map(line).take_while(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

/// The type in `Option<…>`.
pub(crate) fn in_option(of: &Type) -> Option<&Type> {
    let Type::Path(path) = of else { return None };
    let last = path.path.segments.last().filter(|segment| segment.ident == "Option")?;
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first()? {
        syn::GenericArgument::Type(inner) => Some(inner),
        _ => None,
    }
}

/// Whether the type's name is `name`.
pub(crate) fn is_named(of: &Type, name: &str) -> bool {
    matches!(of, Type::Path(path) if path.path.segments.last().is_some_and(|segment| segment.ident == name))
}
