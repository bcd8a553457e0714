//! Messages to webhooks.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

/// `GET /v1/alerts`: the messages to webhooks, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Alerts {
    pub alerts: Vec<Alert>,
    #[schema(value_type = Option<schema::Cursor>)]
    pub cursor: Option<String>,
}

/// A message that a share of a limit is used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Alert {
    /// `webhook-id` of the message.
    pub id: String,
    /// When it was noted that the share was reached.
    #[schema(value_type = schema::Time)]
    pub time: String,
    pub policy: String,
    /// What is counted: `customer:acme`.
    pub subject: String,
    /// Percent.
    pub share: f64,
    /// Units, when the share was reached.
    pub used: u64,
    /// `1000/month (Europe/Berlin)`
    pub limit: String,
    /// The webhook, without its path: `https://hooks.example.com`.
    pub to: String,
    /// `waiting`: it is sent, or sent again. `given_up`: nobody has taken it within an hour.
    #[schema(value_type = schema::AlertState)]
    pub state: String,
    pub attempts: u32,
    /// What the last attempt came to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

/// `POST /v1/alerts/test`: what each webhook replied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TestedAlerts {
    pub webhooks: Vec<TestedWebhook>,
}

/// What a webhook replied to a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TestedWebhook {
    /// Without its path: `https://hooks.example.com`.
    pub to: String,
    /// The policies that it is told about.
    pub policies: Vec<String>,
    /// Its reply, if it took the message: `200 OK`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Why it did not take the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub milliseconds: u64,
}
