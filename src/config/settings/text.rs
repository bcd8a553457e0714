//! Forms of text.

use super::Text;

const fn text(name: &'static str, pattern: &'static str) -> Text {
    Text { name, pattern, is_any_scalar: false, is_secret: false, may_have_credentials: false }
}

const fn scalar(name: &'static str, pattern: &'static str) -> Text {
    Text { is_any_scalar: true, ..text(name, pattern) }
}

const fn secret(name: &'static str, pattern: &'static str) -> Text {
    Text { is_secret: true, ..scalar(name, pattern) }
}

/// A URL, which may have credentials.
const fn url(name: &'static str, pattern: &'static str) -> Text {
    Text { may_have_credentials: true, ..text(name, pattern) }
}

pub(in crate::config) static ANY: Text = scalar("text", "");
pub(in crate::config) static NAME: Text =
    scalar("a name of 1 to 128 printable characters", r"^\S(.{0,126}\S)?$");
pub(in crate::config) static RESOURCE: Text =
    scalar("a name of letters, digits, and `.` `_` `-`", "^[A-Za-z0-9._-]{1,128}$");
pub(in crate::config) static ADDRESS_AND_PORT: Text =
    text("an IP address and a port", r"^([0-9]{1,3}(\.[0-9]{1,3}){3}|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$");
pub(in crate::config) static LISTEN: Text = text(
    "an IP address and a port, or `unix:` and an absolute path",
    r"^(([0-9]{1,3}(\.[0-9]{1,3}){3}|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}|unix:/.{0,105}[^/])$",
);
pub(in crate::config) static FILE_MODE: Text = scalar("a mode of three octal digits", "^0?[0-7]{3}$");
pub(in crate::config) static NETWORK: Text = text(
    "an IP address or a network",
    r"^([0-9]{1,3}(\.[0-9]{1,3}){3}|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)(/[0-9]{1,3})?$",
);
pub(in crate::config) static PROXY: Text = text(
    "an IP address, a network, or `unix`",
    r"^(unix|([0-9]{1,3}(\.[0-9]{1,3}){3}|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)(/[0-9]{1,3})?)$",
);
pub(in crate::config) static DNS_SERVER: Text = text(
    "an IP address, with a port unless it is 53",
    r"^([0-9]{1,3}(\.[0-9]{1,3}){3}(:[0-9]{1,5})?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5})$",
);
pub(in crate::config) static FIELD: Text = text("the name of a header", r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$");
pub(in crate::config) static FIELDS: Text =
    text("the name of a header, or the beginning of one and `*`", r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$");
pub(in crate::config) static FIELD_VALUE: Text =
    scalar("text that a header can hold", r"^(\S([\x20-\x7E\t\u0080-\uFFFF]*\S)?)?$");
pub(in crate::config) static PLACEHOLDERS: Text =
    scalar("text, with placeholders such as `{client_address}`", "");
pub(in crate::config) static TOKEN: Text = scalar("a word without spaces", r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$");
pub(in crate::config) static COOKIE: Text = scalar("the name of a cookie", r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$");
pub(in crate::config) static PARAMETER: Text = scalar("the name of a query parameter, decoded", "^.+$");
pub(in crate::config) static PREFIX: Text =
    scalar("1 to 64 letters, digits, and `_` `-` `.` `:`", "^[A-Za-z0-9_.:-]{1,64}$");
pub(in crate::config) static KEY_PREFIX: Text = scalar("1 to 16 letters and digits", "^[A-Za-z0-9]{1,16}$");
pub(in crate::config) static KEY_FIELD: Text = text("`customer` or `api_key`", "^(customer|api_key)$");
pub(in crate::config) static KEY: Text = text(
    "a key",
    r"^(ip|user|customer|api_key|plan|path|route|host|method|global|(header|cookie):[!#$%&'*.^_`|~0-9A-Za-z-]+|(query|jwt|descriptor):[^+]+|value:[A-Za-z0-9._-]+|tls:(subject|fingerprint))(\+(ip|user|customer|api_key|plan|path|route|host|method|global|(header|cookie):[!#$%&'*.^_`|~0-9A-Za-z-]+|(query|jwt|descriptor):[^+]+|value:[A-Za-z0-9._-]+|tls:(subject|fingerprint)))*$",
);
pub(in crate::config) static CERTIFICATE_FIELD: Text =
    text("`subject` or `fingerprint`", "^(subject|fingerprint)$");
pub(in crate::config) static CONDITION: Text = text(
    "an address, a network, `user:NAME`, `customer:NAME`, `api_key:ID`, `plan:NAME`, `jwt:CLAIM=VALUE`, `header:NAME=VALUE`, `tls:subject=SUBJECT` or `tls:fingerprint=SHA256`",
    r"^(([0-9]{1,3}(\.[0-9]{1,3}){3}|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)(/[0-9]{1,3})?|(user|customer|api_key|plan):.+|jwt:.+=.+|header:[^=]+=.*|tls:(subject|fingerprint)=.+)$",
);
pub(in crate::config) static RATE: Text = text("a rate, such as `100/1s`", "^[0-9]+/[0-9]*(ms|s|m|h|d)$");
pub(in crate::config) static QUOTA: Text = text(
    "a rate, such as `100/1s` or `1000/month`",
    "^[0-9]+(KiB|MiB|GiB|TiB|PiB)?/([0-9]*(ms|s|m|h|d)|hour|day|week|month)$",
);
pub(in crate::config) static SIZE: Text = text("a size, such as `1MiB`", "^[0-9]+(KiB|MiB|GiB|TiB|PiB)$");
pub(in crate::config) static JSON_PATH: Text =
    scalar("names with dots between them, such as `usage.total_tokens`", r"^[^.\s]+(\.[^.\s]+)*$");
pub(in crate::config) static TIME_ZONE: Text =
    text("the name of a time zone, such as `Europe/Berlin`", "^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$");
pub(in crate::config) static FACTOR: Text = scalar("a factor from 1 to 1000", r"^[0-9]+(\.[0-9]+)?$");
pub(in crate::config) static PATH: Text = text(
    "a path, a path that ends with `/*`, a path with parameters, or `~` and a regular expression",
    r"^(/|(/[^/*?#\s{}]*)*(/\*)?|(/([^/*?#\s{}]*|\{[A-Za-z0-9_]+\}))+|~.+)$",
);
pub(in crate::config) static VALUE_PATH: Text = text(
    "a path with a placeholder, such as `/v1beta/models/{model}:*`",
    r"^/[^{}*]*(\{[A-Za-z0-9_]+\}[^{}*]*)+\*?$",
);
pub(in crate::config) static PLAIN_PATH: Text = text("a path", r"^/[^?#\s]*$");
pub(in crate::config) static PROBE_PATH: Text = text("a path, with or without a query", r"^/[^#\s]*$");
pub(in crate::config) static HOST: Text = text(
    "a host, an address, or `*.` and a host",
    r"^((\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\[[0-9A-Fa-f:.]+\])$",
);
pub(in crate::config) static REDIRECT_HOST: Text =
    text("a host or an address", r"^([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\[[0-9A-Fa-f:.]+\])$");
pub(in crate::config) static CERTIFICATE_NAME: Text = text(
    "a host, an address, or `*.` and a host",
    r"^((\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|[0-9A-Fa-f:.]+)$",
);
pub(in crate::config) static SERVER_NAME: Text = text("a host or an address", "^[A-Za-z0-9_.:-]+$");
pub(in crate::config) static AUTHORITY: Text =
    text("a host, with or without a port", r"^[A-Za-z0-9_.-]+(:[0-9]+)?$|^\[[0-9A-Fa-f:.]+\](:[0-9]+)?$");
pub(in crate::config) static ENDPOINT: Text = url("a URL without a path", r"^https?://[^/?#@\s]+/?$");
pub(in crate::config) static REDIRECT_URL: Text =
    url("a URL, with placeholders in its path", r"^https?://[^/?#@\s{}$]+([/?#].*)?$");
pub(in crate::config) static KEY_SET_URL: Text = url(
    "a URL that begins with `https://`, or with `http://` on loopback",
    r"^https?://[^/?#@\s]+([/?][^#\s]*)?$",
);
pub(in crate::config) static COLLECTOR: Text =
    url("a URL that begins with `http://`", r"^http://[^/?#@\s]+(/.*)?$");
pub(in crate::config) static REDIS_URL: Text =
    url("a URL that begins with `redis://`, `rediss://` or `unix://`", r"^(redis|rediss|unix)://\S+$");
pub(in crate::config) static REDIS_NODE: Text =
    url("a URL that begins with `redis://` or `rediss://`", r"^rediss?://[^/\s]+/?$");
pub(in crate::config) static POSTGRES_URL: Text =
    url("a URL that begins with `postgres://`", r"^postgres(ql)?://\S+$");
pub(in crate::config) static WEBHOOK: Text = secret("the URL of a webhook", r"^https?://\S+$");
pub(in crate::config) static ORIGIN: Text =
    text("an origin, such as `https://app.example.com`", r"^(null|[a-z][a-z0-9+.-]*://[^/?#\s]+)$");
pub(in crate::config) static ANY_NAME: Text = text("`*`", r"^\*$");
pub(in crate::config) static METHOD: Text = text("a method", "^[A-Z][A-Z0-9_-]*$");
pub(in crate::config) static STATUSES: Text = scalar(
    "a status, a range such as `200-399`, or a class such as `4xx`",
    "^([1-5][0-9]{2}(-[1-5][0-9]{2})?|[1-5]xx)$",
);
pub(in crate::config) static GRPC_STATUS: Text =
    scalar("the number of a status of gRPC, 0 to 16", "^([0-9]|1[0-6])$");
pub(in crate::config) static TEMPLATE: Text =
    scalar("text, with `{{retry_after}}`, `{{policy}}` or `{{limit}}` in it", "");
pub(in crate::config) static SERVICE: Text = scalar("the name of a gRPC service", r"^[!-.0-~]?[!-~]*$");
pub(in crate::config) static SECRET: Text = secret("a secret", "");
pub(in crate::config) static BEARER: Text = secret("a token of visible ASCII characters", "^[!-~]+$");
pub(in crate::config) static BASIC: Text =
    text("`basic`, `tls:subject` or `tls:fingerprint`", "^(basic|tls:(subject|fingerprint))$");
