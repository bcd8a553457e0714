//! Formats of texts in responses and parameters, for the description of the API only: the code has them as strings.
//!
//! Every valid value matches its pattern, but not every match is valid.

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

use crate::limit::algorithm::Kind;

macro_rules! texts {
    ($($(#[$of:meta])* $name:ident;)*) => {
        $(
            #[derive(Debug, Clone, serde::Serialize, ToSchema)]
            $(#[$of])*
            pub struct $name(pub String);
        )*
    };
}

texts! {
    /// RFC 3339, in UTC.
    #[schema(format = DateTime, example = "2026-07-03T12:00:01.250Z")]
    Time;
    /// As in proxy.yaml: a whole number and a unit.
    #[schema(pattern = r"^[0-9]+(ms|s|m|h|d)$", example = "90m")]
    Duration;
    /// A duration.
    #[schema(pattern = r"^0*[1-9][0-9]*(ms|s|m|h|d)$", example = "1h")]
    Lasts;
    /// A client: an address, or for IPv6 the prefix that identifies it.
    #[schema(
        pattern = r"^((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}(/32)?|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*(/[0-9]{1,3})?)$",
        example = "203.0.113.7"
    )]
    Client;
    /// An address or a prefix.
    #[schema(pattern = r"^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$", example = "203.0.113.0/24")]
    Prefix;
    /// The key of a ban: an address, a prefix or a user.
    #[schema(
        pattern = r"^(user:[^\x00-\x1f\x7f-\x9f]+|(ip:)?[0-9A-Fa-f:.]+(/[0-9]{1,3})?)$",
        example = "ip:203.0.113.7"
    )]
    BanKey;
    /// The key of a limit, as in the store. An address alone needs no `ip:`.
    #[schema(
        pattern = r"^(global|(ip|user|customer|api_key|plan|path|route|host|method|header|cookie|query|jwt|tls):|[0-9A-Fa-f:.]+(/[0-9]{1,3})?$)",
        example = "ip:203.0.113.7+path:/a"
    )]
    LimitKey;
    /// A position in a list, from the previous page.
    #[schema(pattern = r"^[A-Za-z0-9_-]+$")]
    Cursor;
    /// A line of text.
    #[schema(pattern = r"^[^\x00-\x1f\x7f-\x9f]*$", max_length = 256, example = "scraping")]
    Reason;
    /// The ID of an API key.
    #[schema(pattern = r"^[A-Za-z0-9_.-]{1,64}$", example = "Xk3vT9aLq0")]
    KeyId;
    /// The ID of an incident.
    #[schema(pattern = r"^[0-9a-f]{8}$", example = "0a1b2c3d")]
    IncidentId;
    /// The hash of an API key.
    #[schema(pattern = r"^sha256:[0-9A-Fa-f]{64}$")]
    KeyHash;
    /// The name of a customer or a plan.
    #[schema(pattern = r"^[^\x00-\x20\x7f-\x9f]([^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\x9f])?$", max_length = 128, example = "acme")]
    KeyName;
    /// The name of an upstream.
    #[schema(pattern = r"^[A-Za-z0-9_.-]+$", example = "api")]
    UpstreamName;
    /// The URL of an endpoint, as in proxy.yaml.
    #[schema(pattern = r"^https?://[^/?#]+/?$", example = "http://10.0.0.5:3000")]
    EndpointUrl;
    /// A day.
    #[schema(pattern = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", example = "2026-11-27")]
    Date;
    /// A month.
    #[schema(pattern = r"^[0-9]{4}-[0-9]{2}$", example = "2026-11")]
    Month;
    /// RFC 9110, 9.1
    #[schema(pattern = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$", example = "GET")]
    Method;
    /// The other end of a connection, with its port or without.
    #[schema(pattern = r"^[0-9A-Za-z:.%\[\]]+$", example = "203.0.113.7")]
    Peer;
}

macro_rules! vocabulary {
    ($($(#[$doc:meta])* $name:ident { $($word:ident = $text:tt,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, serde::Serialize, ToSchema)]
            #[expect(dead_code, reason = "it is described, and written as text")]
            pub enum $name {
                $(#[serde(rename = $text)] $word,)*
            }
        )*
    };
}

vocabulary! {
    /// Whether the process is alive, or ready.
    HealthWord { Alive = "alive", Ready = "ready", }
    /// The store of the limits.
    Topology { Memory = "memory", Redis = "redis", Sentinel = "sentinel", Cluster = "cluster", }
    /// Whether a Redis server takes writes.
    NodeRole { Primary = "primary", Replica = "replica", }
    /// Whether a Redis server is reachable.
    NodeState { Unknown = "unknown", Up = "up", Down = "down", BreakerOpen = "breaker_open", }
    /// The kind of an outage.
    OutageKind { Route = "route", Endpoint = "endpoint", Upstream = "upstream", Store = "store", }
    /// Whether requests are sent to an endpoint, or to one of its addresses.
    EndpointState {
        Healthy = "healthy",
        Unreachable = "unreachable",
        Unhealthy = "unhealthy",
        Ejected = "ejected",
        Drained = "drained",
        Unresolved = "unresolved",
    }
    /// Whether a certificate is valid now. `expiring`: for less than 14 days.
    CertificateState {
        NotYetValid = "not_yet_valid",
        Valid = "valid",
        Expiring = "expiring",
        Expired = "expired",
    }
    /// Whether usage may still grow. `incomplete`: its month is closed, but some process had not reported all of it.
    UsageState { Open = "open", Closed = "closed", Incomplete = "incomplete", }
    /// Whether a message has arrived. `given_up`: nobody has taken it within an hour.
    AlertState { Waiting = "waiting", Delivered = "delivered", GivenUp = "given_up", }
    /// Why requests were denied. `unidentified`: they lack the value that a policy counts by.
    DenialKind {
        Limit = "limit",
        Ban = "ban",
        Deny = "deny",
        Allow = "allow",
        Credential = "credential",
        Unidentified = "unidentified",
    }
    /// The state of the store's circuit breaker.
    Breaker { Closed = "closed", Open = "open", }
    /// A guess at the kind of a limited client, by its requests, its users and the responses.
    Hint {
        Flood = "flood",
        Scraping = "scraping",
        PasswordGuessing = "password guessing",
        CredentialStuffing = "credential stuffing",
        SharedAddress = "shared address",
        Unknown = "unknown",
    }
    /// What an incident is. `refusals`: clients get 401 or 403, and nothing says that they attack.
    IncidentKind {
        PasswordGuessing = "password guessing",
        CredentialStuffing = "credential stuffing",
        Flood = "flood",
        Scraping = "scraping",
        Refusals = "refusals",
    }
    /// Why a member of an incident is spared.
    SparedBecause {
        Customer = "customer",
        SharedAddress = "shared address",
        Exempt = "exempt",
        OperatorOrProxy = "operator or proxy",
    }
    /// Whether it denies requests, or only counts the denials.
    Mode { Enforce = "enforce", Shadow = "shadow", }
    /// Whether an API key may be used.
    KeyState { Active = "active", Expired = "expired", Revoked = "revoked", }
    /// Where an API key is kept: in the store, or in the file of `api_keys.file`.
    KeySource { Store = "store", File = "file", }
    /// The kind of a change.
    Action {
        Unblock = "unblock",
        Ban = "ban",
        Lift = "lift",
        Reset = "reset",
        Drain = "drain",
        Undrain = "undrain",
        CreateKey = "create_key",
        ChangeKey = "change_key",
        RotateKey = "rotate_key",
        RevokeKey = "revoke_key",
        DeleteKey = "delete_key",
        ImportKeys = "import_keys",
        MoveCustomer = "move_customer",
        CloseMonth = "close_month",
        TestAlerts = "test_alerts",
        BanIncident = "ban_incident",
        UnblockIncident = "unblock_incident",
        AcknowledgeIncident = "acknowledge_incident",
        MuteIncident = "mute_incident",
        Reload = "reload",
        NotReloaded = "not_reloaded",
    }
    /// Whether an address is banned or limited. If neither: `unblocked`, or `free` if its limits and bans have ended.
    AddressState { Banned = "banned", Limited = "limited", Unblocked = "unblocked", Free = "free", }
    /// The predicted outcome of a request.
    Verdict {
        Allowed = "allowed",
        Denied = "denied",
        Banned = "banned",
        Undecided = "undecided",
        Forbidden = "forbidden",
        Refused = "refused",
    }
    /// The kind of a change of a header.
    HeaderChangeKind { Remove = "remove", Set = "set", Add = "add", }
    /// A policy's decision on a request.
    CheckVerdict {
        Allowed = "allowed",
        Denied = "denied",
        Exempt = "exempt",
        Skipped = "skipped",
        Unknown = "unknown",
    }
}

/// How a policy counts: the name of an algorithm.
pub struct Algorithm;

impl PartialSchema for Algorithm {
    fn schema() -> RefOr<Schema> {
        let names = Kind::ALL.map(|kind| kind.description().name);
        let schema = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names));
        schema.description(Some("How a policy counts.")).into()
    }
}

impl ToSchema for Algorithm {}
