//! Converts configurations of other proxies into `proxy.yaml`.
//!
//! A converter reads the configuration of one proxy and fills a `ConfigDraft`. What has no equal in Tollgate becomes a
//! [`Note`]: a comment at its place in the output, and an item of [`Conversion::unconverted`].

mod condition;
mod document;
mod draft;
mod haproxy;
mod in_front;
mod kong;
mod networks;
mod nginx;
mod path;
mod requests;
mod routes;
mod site;
mod traefik;
mod yaml;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use url::Url;

use crate::{
    config::{ForeignProxy, foreign_proxy, is_of_tollgate},
    file,
};

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A proxy whose configurations can be converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Nginx,
    Haproxy,
    Traefik,
    Kong,
}

impl Source {
    pub const ALL: [Self; 4] = [Self::Nginx, Self::Haproxy, Self::Traefik, Self::Kong];

    /// The name that `--from` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Traefik => "traefik",
            Self::Kong => "kong",
        }
    }

    /// The name as its users write it.
    fn title(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "HAProxy",
            Self::Traefik => "Traefik",
            Self::Kong => "Kong",
        }
    }

    /// Recognises a configuration by its contents.
    fn of(text: &str, path: &Path) -> Result<Self, ConvertError> {
        let other = |what: &str| ConvertError::Unsupported { file: path.to_owned(), what: what.to_owned() };
        match foreign_proxy(text) {
            Some(ForeignProxy::Nginx) => Ok(Self::Nginx),
            Some(ForeignProxy::Haproxy) => Ok(Self::Haproxy),
            Some(ForeignProxy::Traefik) => Ok(Self::Traefik),
            Some(ForeignProxy::Kong) => Ok(Self::Kong),
            Some(proxy) => Err(other(&format!(
                "this is {}. tollgate convert reads configurations of nginx, HAProxy, Traefik and Kong; see {}",
                proxy.configuration(),
                proxy.page()
            ))),
            None if is_of_tollgate(text) => {
                Err(other("this is a configuration of Tollgate already; tollgate check shows its errors"))
            }
            None => Err(other(
                "tollgate convert reads nginx, HAProxy, Traefik and Kong, and this looks like none of them; \
                if it is one, name it: --from nginx",
            )),
        }
    }
}

impl FromStr for Source {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|source| source.name() == name);
        known.ok_or_else(|| format!("one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// A line of a file that is converted.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLine {
    pub file: String,
    /// From 1.
    pub line: usize,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A part of a configuration that has no equal in Tollgate, and the advice about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    pub place: SourceLine,
    pub text: String,
}

/// A configuration that was converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversion {
    /// The text of `proxy.yaml`.
    pub yaml: String,
    /// Each is also a comment in `yaml`. Sorted by place.
    pub unconverted: Vec<Note>,
    pub routes: usize,
    pub policies: usize,
}

/// Why a configuration was not converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    #[error("{}: cannot be read: {error}", file.display())]
    Read { file: PathBuf, error: io::Error },
    /// `line` and `column` begin at 1; the column counts characters.
    #[error("{file}:{line}:{column}: {message}")]
    Syntax { file: String, line: usize, column: usize, message: String },
    #[error("{}: {what}", file.display())]
    Unsupported { file: PathBuf, what: String },
}

/// Checks the URL of an old proxy for [`convert`].
///
/// # Errors
/// The error.
pub fn old_proxy(text: &str) -> Result<Url, String> {
    in_front::parse_url(text)
}

/// Converts the configuration at `path`, and the files that it includes. Without `from`, its contents tell which
/// proxy it is for. With `in_front_of`, Tollgate only counts, and sends all requests on to the old proxy at this URL.
///
/// # Errors
/// A file cannot be read or parsed, or is for another proxy.
pub fn convert(
    path: &Path,
    from: Option<Source>,
    in_front_of: Option<&Url>,
) -> Result<Conversion, ConvertError> {
    let text = read(path)?;
    let source = from.map_or_else(|| Source::of(&text, path), Ok)?;
    let draft = match source {
        Source::Nginx => nginx::convert(&text, path),
        Source::Haproxy => haproxy::convert(&text, path),
        Source::Traefik => traefik::convert(&text, path),
        Source::Kong => kong::convert(&text, path),
    }?;
    let title = format!("Converted from {} by `tollgate convert`.", path.display());
    Ok(draft.finish(&title, in_front_of.map(|url| (url, source))))
}

/// Reads a file. Bytes that are not UTF-8, such as those of a comment in Latin-1, become U+FFFD.
fn read(path: &Path) -> Result<String, ConvertError> {
    let bytes = file::read(path, MAX_FILE_BYTES)
        .map_err(|error| ConvertError::Read { file: path.to_owned(), error })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
