//! `#[derive(Word)]`, `#[derive(Label)]`

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, LitStr, Result};

/// `ALL` and `name`, and the words.
fn words(input: &DeriveInput) -> Result<(TokenStream, Vec<LitStr>)> {
    let Data::Enum(data) = &input.data else { return Err(Error::new_spanned(input, "only for an enum")) };
    let (mut words, mut variants) = (Vec::new(), Vec::new());
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            return Err(Error::new_spanned(variant, "a word has no fields"));
        }
        let own = variant
            .attrs
            .iter()
            .find(|attribute| ["word", "label"].iter().any(|name| attribute.path().is_ident(name)));
        words.push(match own {
            Some(attribute) => attribute.parse_args::<LitStr>()?,
            None => LitStr::new(&snake_case(&variant.ident.to_string()), variant.ident.span()),
        });
        variants.push(&variant.ident);
    }
    let (name, count) = (&input.ident, words.len());
    let all = quote! {
        impl #name {
            /// All of them, in the order of their declaration.
            pub const ALL: [Self; #count] = [#(Self::#variants),*];

            /// The word that stands for it: in `proxy.yaml`, or as the label of a metric.
            pub const fn name(self) -> &'static str {
                match self { #(Self::#variants => #words),* }
            }
        }
    };
    Ok((all, words))
}

pub(crate) fn label(input: &DeriveInput) -> Result<TokenStream> {
    Ok(words(input)?.0)
}

pub(crate) fn word(input: &DeriveInput) -> Result<TokenStream> {
    let ((all, words), name) = (words(input)?, &input.ident);
    Ok(quote! {
        #all
        impl crate::config::settings::Value for #name {
            const KIND: crate::config::settings::Kind = crate::config::settings::Kind::Word(&[#(#words),*]);
            fn parse(text: &str) -> Result<Self, crate::config::value::Invalid> {
                crate::config::value::choice(&Self::ALL.map(|word| (word.name(), word)))(text)
            }
        }
        impl serde::Serialize for #name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }
    })
}

/// `RoundRobin` as `round_robin`.
fn snake_case(name: &str) -> String {
    let mut word = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.extend(letter.to_lowercase());
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_written_in_snake_case() {
        for (variant, word) in
            [("Off", "off"), ("RoundRobin", "round_robin"), ("Http2", "http2"), ("H2C", "h2_c")]
        {
            assert_eq!(snake_case(variant), word);
        }
    }
}
