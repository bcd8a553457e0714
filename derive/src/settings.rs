//! `#[derive(Settings)]`

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, Expr, Fields, Ident, LitStr, Path, Result, Type};

use crate::{
    attributes::{FieldAttributes, MappingAttributes, doc, in_option, is_named},
    kind::Kind,
};

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else { return Err(Error::new_spanned(input, "only for a struct")) };
    let Fields::Named(named) = &data.fields else {
        return Err(Error::new_spanned(input, "only for named fields"));
    };
    let attributes = MappingAttributes::of(&input.attrs)?;
    let fields = named
        .named
        .iter()
        .map(|field| {
            let attributes = FieldAttributes::of(&field.attrs)?;
            let name = field.ident.clone().ok_or_else(|| Error::new_spanned(field, "expected a name"))?;
            Ok(Field { name, of: field.ty.clone(), about: doc(&field.attrs), attributes })
        })
        .collect::<Result<Vec<_>>>()?;
    let described = described(input, &attributes, &fields)?;
    let read = if attributes.unread { TokenStream::new() } else { read(input, &attributes, &fields)? };
    let rest =
        if attributes.written || attributes.unread { TokenStream::new() } else { serialize(input, &fields) };
    Ok(quote! { #described #read #rest })
}

struct Field {
    name: Ident,
    of: Type,
    about: String,
    attributes: FieldAttributes,
}

impl Field {
    fn key(&self) -> LitStr {
        self.attributes.key.clone().unwrap_or_else(|| LitStr::new(&self.name.to_string(), self.name.span()))
    }

    /// The type of a value: `T` for `T` and for `Option<T>`.
    fn value_type(&self) -> &Type {
        in_option(&self.of).unwrap_or(&self.of)
    }

    fn is_optional(&self) -> bool {
        in_option(&self.of).is_some()
    }

    fn is_mapping(&self) -> bool {
        matches!(self.attributes.kind, Some(Kind::Mapping(_)))
            && self.attributes.read.is_none()
            && !self.is_cursor()
    }

    /// Whether the field keeps the cursor, which other code reads.
    fn is_cursor(&self) -> bool {
        is_named(self.value_type(), "Cursor")
    }

    /// Whether the mapping is invalid without it.
    fn is_required(&self) -> bool {
        let FieldAttributes { default, value, unset, .. } = &self.attributes;
        let has_default = default.is_some() || value.is_some() || unset.is_some();
        !self.is_optional() && !self.is_prefix() && !has_default
    }

    fn is_prefix(&self) -> bool {
        self.key().value().ends_with('*')
    }

    /// The function that parses a single value.
    fn parser(&self) -> Option<TokenStream> {
        let of = self.value_type();
        if let Some(parse) = &self.attributes.parse {
            return Some(quote!(#parse));
        }
        match &self.attributes.kind {
            Some(Kind::Size(least, most)) => {
                Some(quote!(crate::config::settings::size_in::<#of>(#least..=#most)))
            }
            Some(Kind::Count(least, most)) => {
                Some(quote!(crate::config::settings::count_in::<#of>(#least..=#most)))
            }
            Some(Kind::Duration(least, most)) => {
                Some(quote!(crate::config::settings::duration_in(#least..=#most)))
            }
            Some(Kind::Share(true, 100)) => Some(quote!(crate::config::value::percentage)),
            Some(Kind::Share(true, most)) => Some(quote!(crate::config::settings::share_up_to(#most))),
            Some(Kind::Of(of)) => Some(quote!(<#of as crate::config::settings::Value>::parse)),
            Some(Kind::Boolean | Kind::Word(_)) | None => {
                Some(quote!(<#of as crate::config::settings::Value>::parse))
            }
            _ => None,
        }
    }

    /// The expression that reads `value`, a cursor. Its type is an option of the value type.
    fn reader(&self) -> Result<TokenStream> {
        let of = self.value_type();
        if let Some(read) = &self.attributes.read {
            return Ok(quote!(#read(value)));
        }
        if self.is_cursor() {
            return Ok(quote!(Some(value)));
        }
        if self.is_mapping() {
            return Ok(quote!(<#of as crate::config::settings::Read>::read(value)));
        }
        let Some(parser) = self.parser() else {
            return Err(Error::new_spanned(&self.name, "how is it read? add `parse` or `read`"));
        };
        Ok(match &self.attributes.kind {
            Some(Kind::List(..)) => quote!(Some(value.unique_items(|item| item.parse(#parser)))),
            _ => quote!(value.parse(#parser)),
        })
    }

    /// The default of the field.
    fn default(&self) -> Result<TokenStream> {
        let FieldAttributes { default, value, .. } = &self.attributes;
        Ok(match (value, default) {
            (Some(value), _) => quote!(#value),
            (None, Some(text)) => {
                let parser = self
                    .parser()
                    .filter(|_| self.attributes.read.is_none() || self.attributes.parse.is_some());
                let Some(parser) = parser else {
                    return Err(Error::new_spanned(&self.name, "add `value`: the default in Rust"));
                };
                let text = LitStr::new(text.value().trim_matches('"'), text.span());
                match self.is_optional() {
                    true => quote!(Some(crate::config::settings::parsed(#text, #parser))),
                    false => quote!(crate::config::settings::parsed(#text, #parser)),
                }
            }
            (None, None) => quote!(Default::default()),
        })
    }
}

/// `impl Settings`
fn described(input: &DeriveInput, attributes: &MappingAttributes, fields: &[Field]) -> Result<TokenStream> {
    let (name, (generics, arguments, bounds)) = (&input.ident, input.generics.split_for_impl());
    let about = doc(&input.attrs);
    let text = |text: &Option<LitStr>| text.as_ref().map_or_else(String::new, LitStr::value);
    let (page, sample) = (text(&attributes.page), text(&attributes.sample));
    let rules = attributes.rules.iter().map(|rule| quote!(crate::config::settings::Rule::#rule));
    let such_as = match &attributes.such_as {
        None => quote!(None),
        Some(Expr::Lit(line)) => quote!(Some(|_| #line)),
        Some(line) => quote!(Some(#line)),
    };
    let foreign = text(&attributes.foreign);
    // Each list is a static of its own: a constant cannot refer to other statics from a temporary value.
    let list = |settings: &[TokenStream]| {
        let count = settings.len();
        quote!({
            static LIST: [crate::config::settings::Setting; #count] = [#(#settings),*];
            &LIST
        })
    };
    let mut parts = Vec::new();
    let mut own = Vec::new();
    for field in fields {
        let spliced = field.attributes.before.as_ref().or(field.attributes.flatten.then_some(&field.of));
        if let Some(of) = spliced {
            let before = std::mem::take(&mut own);
            parts.push(list(&before));
            let others = quote!(<#of as crate::config::settings::Settings>::OWN);
            parts.push(match &field.attributes.inherited {
                None => others,
                Some(meaning) => quote!({
                    static LIST: [crate::config::settings::Setting; #others.len()] =
                        crate::config::settings::Setting::inherited(#others, #meaning);
                    &LIST
                }),
            });
        }
        if field.attributes.flatten || field.attributes.skip {
            continue;
        }
        own.push(setting(field)?);
    }
    if let Some(last) = &attributes.last {
        parts.push(list(&std::mem::take(&mut own)));
        parts.push(quote!(<#last as crate::config::settings::Settings>::OWN));
    }
    let own = match parts.is_empty() {
        true => list(&own),
        false => {
            parts.push(list(&own));
            quote!(&[])
        }
    };
    let parts = match parts.is_empty() {
        true => quote!(&[Self::OWN]),
        false => quote!(&[#(#parts),*]),
    };
    let of = attributes.of.as_ref().map(|of| {
        quote! {
            impl crate::config::settings::Settings for #of {
                const OWN: &'static [crate::config::settings::Setting] =
                    <#name as crate::config::settings::Settings>::OWN;
                const PARTS: &'static [&'static [crate::config::settings::Setting]] =
                    <#name as crate::config::settings::Settings>::PARTS;
                fn mapping() -> &'static crate::config::settings::Mapping {
                    <#name as crate::config::settings::Settings>::mapping()
                }
            }
        }
    });
    let (restart, checks) = restart(attributes, fields)?;
    Ok(quote! {
        #of
        #checks
        impl #generics crate::config::settings::Settings for #name #arguments #bounds {
            const OWN: &'static [crate::config::settings::Setting] = #own;
            fn mapping() -> &'static crate::config::settings::Mapping {
                static MAPPING: crate::config::settings::Mapping =
                    crate::config::settings::Mapping::new(#about, #page, <#name as crate::config::settings::Settings>::PARTS)
                        .rules(&[#(#rules),*])
                        .sample(#sample)
                        .such_as(#such_as)
                        .foreign(#foreign);
                &MAPPING
            }
            const PARTS: &'static [&'static [crate::config::settings::Setting]] = #parts;
            #restart
        }
    })
}

/// The part of `impl Settings` about restarts, and the checks of which mappings can have such settings.
fn restart(attributes: &MappingAttributes, fields: &[Field]) -> Result<(TokenStream, TokenStream)> {
    let settings = quote!(crate::config::settings::Settings);
    let (mut kept, mut within, mut elsewhere) = (Vec::new(), Vec::new(), Vec::new());
    for Field { name, of, attributes: field, .. } in fields {
        if field.restart && attributes.written {
            let why =
                "a reload can't keep a setting that other code reads: set `restart` where the model has it";
            return Err(Error::new_spanned(name, why));
        }
        if field.restart {
            kept.push(name);
            continue;
        }
        let own = in_option(of).unwrap_or(of);
        let mut mappings = Vec::new();
        field.kind.iter().for_each(|kind| kind.mappings(own, &mut mappings));
        mappings.extend(field.flatten.then_some(own));
        mappings.extend(&field.before);
        for mapping in mappings {
            match mapping == own && !attributes.written {
                true => within.push((name, own, in_option(of).is_some())),
                false => elsewhere.push(mapping),
            }
        }
    }
    elsewhere.extend(&attributes.last);
    // Behind the struct, its lifetime has no name.
    let elsewhere = elsewhere
        .into_iter()
        .map(|of| syn::parse_str::<Type>(&quote!(#of).to_string().replace("'t", "'static")))
        .collect::<Result<Vec<_>>>()?;
    let has_own = !kept.is_empty();
    let nested = within.iter().map(|(_, of, _)| quote!(|| <#of as #settings>::RESTART));
    let keep_nested = within.iter().map(|(name, of, is_optional)| match is_optional {
        true => quote! {
            if let (Some(new), Some(old)) = (&mut self.#name, &old.#name) {
                <#of as #settings>::keep_until_restart(new, old);
            }
        },
        false => quote!(<#of as #settings>::keep_until_restart(&mut self.#name, &old.#name);),
    });
    let kept_by_settings = quote! {
        const RESTART: bool = #has_own #(#nested)*;
        fn keep_until_restart(&mut self, old: &Self) {
            let _ = old;
            #(self.#kept.clone_from(&old.#kept);)*
            #(#keep_nested)*
        }
    };
    let checks = quote! {
        #(const _: () = assert!(
            !<#elsewhere as #settings>::RESTART,
            "a reload can't keep a setting of this mapping: set `restart` where the model has the mapping as a field",
        );)*
    };
    Ok((kept_by_settings, checks))
}

/// The constant that describes one setting.
fn setting(field: &Field) -> Result<TokenStream> {
    let FieldAttributes { kind, default, unset, example, beside, see, flags, .. } = &field.attributes;
    let (key, about, of) = (field.key(), &field.about, field.value_type());
    if about.is_empty() {
        return Err(Error::new_spanned(&field.name, "a doc comment has to say what it is"));
    }
    let kind = match kind {
        Some(kind) => kind.constant(of),
        None => Kind::Of(Box::new(of.clone())).constant(of),
    };
    let mut setting = quote!(crate::config::settings::Setting::new(#key, #kind, #about));
    for (method, text) in [("default", default), ("unset", unset), ("example", example), ("beside", beside)] {
        if let Some(text) = text {
            let method = format_ident!("{method}");
            setting.extend(quote!(.#method(#text)));
        }
    }
    if let Some(see) = see {
        setting.extend(quote!(.see(&#see)));
    }
    for flag in flags {
        setting.extend(quote!(.#flag()));
    }
    Ok(setting)
}

/// `impl Read`, and where nothing is required, `Default` and `ReadOver`.
fn read(input: &DeriveInput, attributes: &MappingAttributes, fields: &[Field]) -> Result<TokenStream> {
    let name = &input.ident;
    let lifetime = input.generics.lifetimes().next().map(|parameter| parameter.lifetime.clone());
    let arguments = lifetime.as_ref().map(|_| quote!(<'t>));
    let names: Vec<_> = fields.iter().map(|field| &field.name).collect();
    let check = attributes.check.as_ref().map(|check| {
        quote! {
            fn check(mapping: &crate::config::reader::MappingCursor<'t>, read: Option<&Self>) {
                #check(mapping, read);
            }
        }
    });
    let is_required = fields.iter().any(Field::is_required);
    let is_plain = !is_required && lifetime.is_none();
    let mut taken = Vec::new();
    for field in fields {
        let (own, key, of) = (&field.name, field.key(), field.value_type());
        let reader = if field.attributes.flatten || field.is_prefix() { quote!() } else { field.reader()? };
        let found = match &field.attributes.missing {
            Some(help) => quote!(mapping.require(#key, #help)),
            None => quote!(mapping.take(#key)),
        };
        taken.push(match () {
            () if field.attributes.flatten && is_plain => quote! {
                let #own = <#of as crate::config::settings::ReadOver>::over(default.#own, mapping);
            },
            () if field.attributes.flatten => quote! {
                let #own = <#of as crate::config::settings::Read>::fields(mapping);
            },
            () if field.is_prefix() => {
                let prefix = key.value();
                let prefix = prefix.trim_end_matches('*');
                quote!(let #own = Some(mapping.entries_with_prefix(&[#prefix]));)
            }
            () if field.is_optional() && is_plain => quote! {
                let #own = #found.and_then(|value| #reader).or(default.#own);
            },
            () if field.is_optional() => quote! {
                let #own = Some(#found.and_then(|value| #reader));
            },
            () if field.is_required() => quote! {
                let #own = #found.and_then(|value| #reader);
            },
            () if is_plain && field.is_mapping() => quote! {
                let #own = <#of as crate::config::settings::ReadOver>::or(#found, default.#own);
            },
            () if field.is_mapping() => quote! {
                let #own = Some(<#of as crate::config::settings::ReadOver>::or(#found, Default::default()));
            },
            () if is_plain => quote! {
                let #own = #found.and_then(|value| #reader).unwrap_or(default.#own);
            },
            () => {
                let default = field.default()?;
                quote!(let #own = Some(#found.and_then(|value| #reader).unwrap_or_else(|| #default));)
            }
        });
    }
    if !is_plain {
        let constructor =
            if attributes.constructor { constructor(input, fields)? } else { TokenStream::new() };
        return Ok(quote! {
            #constructor
            impl<'t> crate::config::settings::Read<'t> for #name #arguments {
                fn fields(mapping: &mut crate::config::reader::MappingCursor<'t>) -> Option<Self> {
                    #(#taken)*
                    Some(Self { #(#names: #names?),* })
                }
                #check
            }
        });
    }
    let defaults = fields.iter().map(Field::default).collect::<Result<Vec<_>>>()?;
    Ok(quote! {
        impl Default for #name {
            fn default() -> Self {
                Self { #(#names: #defaults),* }
            }
        }
        impl<'t> crate::config::settings::Read<'t> for #name {
            fn fields(mapping: &mut crate::config::reader::MappingCursor<'t>) -> Option<Self> {
                Some(<Self as crate::config::settings::ReadOver>::over(Self::default(), mapping))
            }
            #check
        }
        impl<'t> crate::config::settings::ReadOver<'t> for #name {
            fn over(default: Self, mapping: &mut crate::config::reader::MappingCursor<'t>) -> Self {
                #(#taken)*
                Self { #(#names),* }
            }
        }
    })
}

/// `new`, which takes the required settings, and sets all others to their defaults.
fn constructor(input: &DeriveInput, fields: &[Field]) -> Result<TokenStream> {
    let name = &input.ident;
    let (mut parameters, mut values) = (Vec::new(), Vec::new());
    for field in fields {
        let (own, of) = (&field.name, &field.of);
        if field.is_required() {
            parameters.push(quote!(#own: #of));
            values.push(quote!(#own));
        } else {
            let default = field.default()?;
            values.push(quote!(#own: #default));
        }
    }
    Ok(quote! {
        impl #name {
            /// With the default of every other setting.
            pub fn new(#(#parameters),*) -> Self {
                Self { #(#values),* }
            }
        }
    })
}

/// `impl Serialize`: a map with each setting by its key, as the file would write it.
fn serialize(input: &DeriveInput, fields: &[Field]) -> TokenStream {
    let name = &input.ident;
    let mut entries = Vec::new();
    for field in fields {
        let (own, key, of) = (&field.name, field.key(), field.value_type());
        if field.attributes.skip {
            continue;
        }
        if field.attributes.flatten {
            entries.push(quote!(crate::config::settings::flatten(&self.#own, &mut map)?;));
            continue;
        }
        let shown: Option<Path> = field.attributes.shown.clone().or_else(|| match &field.attributes.kind {
            Some(Kind::Duration(..)) => Some(syn::parse_quote!(crate::config::written::serialize::duration)),
            Some(Kind::Size(..)) => Some(syn::parse_quote!(crate::config::written::serialize::size)),
            Some(Kind::Share(..)) => Some(syn::parse_quote!(crate::config::written::serialize::percentage)),
            _ => None,
        });
        let entry = match shown {
            None => quote!(serde::ser::SerializeMap::serialize_entry(&mut map, #key, value)?;),
            Some(shown) => quote! {
                {
                    struct Shown<'a>(&'a #of);
                    impl serde::Serialize for Shown<'_> {
                        fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                            #shown(self.0, to)
                        }
                    }
                    serde::ser::SerializeMap::serialize_entry(&mut map, #key, &Shown(value))?;
                }
            },
        };
        let entry = match &field.attributes.omit_if {
            None => entry,
            Some(is_omitted) => quote!(if !#is_omitted(value) { #entry }),
        };
        entries.push(match field.is_optional() {
            true => quote!(if let Some(value) = &self.#own { #entry }),
            false => quote!({ let value = &self.#own; #entry }),
        });
    }
    quote! {
        impl serde::Serialize for #name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let mut map = serde::Serializer::serialize_map(to, None)?;
                #(#entries)*
                serde::ser::SerializeMap::end(map)
            }
        }
    }
}
