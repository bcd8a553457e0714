//! The JSON Schema of `proxy.yaml`, for editors.

use serde_json::{Map, Value, json};

use super::{
    Default, Items, Kind, Mapping, Rule, Setting, Settings,
    entries::{PathStep, descend},
};
use crate::config::resolved::Config;

/// Text with `${…}` in it, which may become anything.
const INTERPOLATED: &str = r"\$\{";

/// The schema (2020-12).
pub fn json_schema() -> Value {
    let mut definitions = Definitions::default();
    definitions.collect(Config::mapping(), "");
    let mut schema = definitions.mapping(Config::mapping());
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("The configuration of Tollgate, proxy.yaml");
    let all: Map<String, Value> = definitions
        .names
        .iter()
        .map(|(mapping, name)| (name.clone(), definitions.mapping(mapping)))
        .collect();
    schema["$defs"] = Value::Object(all);
    schema
}

/// The mappings below the top level, each with its name among the definitions.
#[derive(Default)]
struct Definitions {
    names: Vec<(&'static Mapping, String)>,
}

impl Definitions {
    fn collect(&mut self, mapping: &'static Mapping, path: &str) {
        for setting in mapping.settings() {
            let key = if setting.key == "*" { "each" } else { setting.key.trim_end_matches(['*', ':']) };
            let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
            let mut found = Vec::new();
            descend(&setting.kind, &mut Vec::new(), &mut |mapping, steps| {
                let below: String = steps
                    .iter()
                    .map(|step| match step {
                        PathStep::Item => ".item",
                        PathStep::Name | PathStep::Key(..) => ".each",
                    })
                    .collect();
                found.push((mapping, format!("{path}{below}")));
            });
            for (mapping, name) in found {
                if self.name(mapping).is_none() {
                    self.names.push((mapping, name.clone()));
                    self.collect(mapping, &name);
                }
            }
        }
    }

    fn name(&self, mapping: &'static Mapping) -> Option<&str> {
        let (_, name) = self.names.iter().find(|(known, _)| std::ptr::eq(*known, mapping))?;
        Some(name)
    }

    fn mapping(&self, mapping: &'static Mapping) -> Value {
        let (mut properties, mut patterns) = (Map::new(), Map::new());
        for setting in mapping.settings() {
            let value = self.setting(setting);
            match setting.prefix() {
                None => properties.insert(setting.key.to_owned(), value),
                // Any name except the keys of the other settings.
                Some("") => patterns.insert("^[A-Za-z0-9._-]{1,128}$".to_owned(), value),
                Some(prefix) => patterns.insert(format!("^{prefix}"), value),
            };
        }
        if let Some(any) = patterns.get("^[A-Za-z0-9._-]{1,128}$").cloned() {
            let own: Vec<&str> = mapping.keys().collect();
            patterns.clear();
            patterns.insert(format!("^(?!({})$)[A-Za-z0-9._-]{{1,128}}$", own.join("|")), any);
        }
        let required: Vec<_> = mapping
            .settings()
            .filter(|setting| mapping.requires(setting))
            .map(|setting| setting.key)
            .collect();
        let mut schema = json!({
            "type": "object",
            "description": mapping.about,
            "properties": properties,
            "additionalProperties": false,
        });
        if !patterns.is_empty() {
            schema["patternProperties"] = Value::Object(patterns);
        }
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        let rules: Vec<_> = mapping.rules.iter().map(|rule| self.rule(rule)).collect();
        if !rules.is_empty() {
            schema["allOf"] = json!(rules);
        }
        schema
    }

    fn setting(&self, setting: &'static Setting) -> Value {
        let mut schema = self.kind(&setting.kind);
        if let Some(members) = schema.as_object_mut() {
            members.insert("description".to_owned(), json!(setting.about));
            if let Some(value) = match setting.default {
                Default::Value(value) => scalar(value),
                _ => None,
            } {
                members.insert("default".to_owned(), value);
            }
            if let Some(example) = scalar(setting.example).filter(|_| !setting.example.is_empty()) {
                members.insert("examples".to_owned(), json!([example]));
            }
        }
        schema
    }

    fn kind(&self, kind: &'static Kind) -> Value {
        match kind {
            Kind::Boolean => json!({
                "type": ["boolean", "string"],
                "pattern": format!("^(true|false)$|{INTERPOLATED}"),
            }),
            Kind::Word(words) => word(words),
            Kind::Count(least, most) => json!({
                "type": ["integer", "string"],
                "minimum": least,
                "maximum": most,
                "pattern": format!("^[0-9]+$|{INTERPOLATED}"),
            }),
            Kind::Duration(..) => text("^[0-9]+(ms|s|m|h|d)$"),
            Kind::Size(least, most) => json!({
                "type": ["integer", "string"],
                "minimum": least,
                "maximum": most,
                "pattern": format!("^[0-9]+(KiB|MiB|GiB)?$|{INTERPOLATED}"),
            }),
            Kind::Percentage(true, 100) => text(r"^(100(\.0*)?|[0-9]{1,2}(\.[0-9]*)?|\.[0-9]+)%$"),
            Kind::Percentage(true, _) => text(r"^(50(\.0*)?|[0-4]?[0-9](\.[0-9]*)?|\.[0-9]+)%$"),
            Kind::Percentage(false, _) => {
                text(r"^(?!0*(\.0*)?%$)(100(\.0*)?|[0-9]{1,2}(\.[0-9]*)?|\.[0-9]+)%$")
            }
            Kind::Text(form) if form.is_any_scalar && form.pattern.is_empty() => {
                json!({ "type": ["string", "number", "boolean"] })
            }
            Kind::Text(form) if form.is_any_scalar => json!({
                "type": ["string", "number", "boolean"],
                "pattern": format!("{}|{INTERPOLATED}", form.pattern),
            }),
            Kind::Text(form) => text(form.pattern),
            Kind::File => json!({ "type": ["string", "number", "boolean"], "minLength": 1 }),
            Kind::List(item, items) => {
                let mut schema = json!({ "type": "array", "items": self.kind(item) });
                if items.is_never_empty() {
                    schema["minItems"] = json!(1);
                }
                if items.is_unique() {
                    schema["uniqueItems"] = json!(true);
                }
                schema
            }
            Kind::Names(name, value, items) => {
                let mut schema = json!({
                    "type": "object",
                    "propertyNames": { "pattern": name.pattern },
                    "additionalProperties": self.kind(value),
                });
                if *items == Items::Some {
                    schema["minProperties"] = json!(1);
                }
                schema
            }
            Kind::Mapping(mapping) => {
                json!({ "$ref": format!("#/$defs/{}", self.name(mapping()).unwrap_or_default()) })
            }
            Kind::Either(kinds) => {
                json!({ "anyOf": kinds.iter().map(|kind| self.kind(kind)).collect::<Vec<_>>() })
            }
            Kind::Any => json!({}),
        }
    }

    fn rule(&self, rule: &'static Rule) -> Value {
        let each = |keys: &[&str]| keys.iter().map(|key| has(key)).collect::<Vec<_>>();
        match rule {
            Rule::One(keys) => json!({ "oneOf": each(keys) }),
            Rule::AtLeastOne(keys) => json!({ "anyOf": each(keys) }),
            Rule::AtMostOne(keys) => {
                json!({ "oneOf": each(keys).into_iter().chain([json!({ "not": { "anyOf": each(keys) } })]).collect::<Vec<_>>() })
            }
            Rule::With(one, other) => json!({ "if": has(one), "then": has(other) }),
            Rule::Where(one, other, values) => json!({ "if": has(one), "then": is_one_of(other, values) }),
            Rule::NotWhere(one, other, values) => {
                json!({ "if": has(one), "then": { "not": is_one_of(other, values) } })
            }
            Rule::RequiredWhere(one, other, values) => {
                let mut cases = vec![is_one_of(other, values)];
                if values.contains(&"") {
                    cases.push(json!({ "not": has(other) }));
                }
                json!({ "if": { "anyOf": cases }, "then": has(one) })
            }
            Rule::KindWhere(one, other, value, then, otherwise) => json!({
                "if": is_one_of(other, &[value]),
                "then": { "properties": { *one: self.kind(then) } },
                "else": { "properties": { *one: self.kind(otherwise) } },
            }),
        }
    }
}

/// Requires this key.
fn has(key: &str) -> Value {
    match key.strip_suffix('*') {
        None => json!({ "required": [key] }),
        Some(prefix) => json!({ "not": { "patternProperties": { format!("^{prefix}"): false } } }),
    }
}

/// Requires this setting with one of these values.
fn is_one_of(key: &str, values: &[&str]) -> Value {
    json!({ "required": [key], "properties": { key: { "enum": values } } })
}

/// Text that matches `pattern`.
fn text(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": format!("{pattern}|{INTERPOLATED}") })
}

/// One of these words, some of which are numbers in YAML.
fn word(words: &[&str]) -> Value {
    let own = json!({ "enum": words.iter().flat_map(|word| [Some(json!(word)), number(word)]).flatten().collect::<Vec<_>>() });
    json!({ "anyOf": [own, { "type": "string", "pattern": INTERPOLATED }] })
}

fn number(word: &str) -> Option<Value> {
    serde_json::from_str(word).ok().filter(Value::is_number)
}

/// A scalar, parsed as YAML.
fn scalar(written: &str) -> Option<Value> {
    if written.starts_with(['[', '{']) {
        return None;
    }
    Some(serde_json::from_str(written).unwrap_or_else(|_| json!(written)))
}
