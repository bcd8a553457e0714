//! Whoever speaks to the admin port meanwhile: the screen and the keys never wait for an answer.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::sync::mpsc::{Receiver, Sender};

use super::{
    super::client::{self, Connection, Failure, Options},
    snapshot::Snapshot,
};
use crate::{
    abuse::Sort,
    admin::dto::{Ban, Evidence, NewBan, Unblocked},
};

/// For an answer: an operator who looks at old figures should know it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a ban by a key lasts.
const BAN: &str = "1h";

/// What the admin port is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Job {
    /// How things stand, and what is known of an address that is looked at.
    Look { sort: Sort, address: Option<String> },
    /// Something is changed.
    Change(Change),
}

/// What an operator may do about an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Unblock(String),
    Ban(String),
}

/// An address, and what is known of it, or why nothing is.
pub(super) type Learned = (String, Result<Evidence, String>);

/// What came of it.
#[derive(Debug)]
pub(super) enum Told {
    Stands {
        snapshot: Box<Snapshot>,
        evidence: Option<Box<Learned>>,
    },
    /// In words.
    Changed(String),
    /// It can't be known how things stand.
    NoLook(Failure),
    NoChange(Failure),
}

/// Does one job after another, until nobody has any or wants to know.
pub(super) async fn serve(options: Options, mut jobs: Receiver<Job>, told: Sender<Told>) {
    let mut asker = Asker { options, connection: None };
    while let Some(job) = jobs.recv().await {
        let done = client::in_time(&asker.options.clone(), PATIENCE, asker.perform(&job)).await;
        let tell = done.unwrap_or_else(|failure| match job {
            Job::Look { .. } => Told::NoLook(failure),
            Job::Change(_) => Told::NoChange(failure),
        });
        if told.send(tell).await.is_err() {
            return;
        }
    }
}

struct Asker {
    options: Options,
    /// Kept while answers come; what fails is done anew.
    connection: Option<Connection>,
}

impl Asker {
    async fn perform(&mut self, job: &Job) -> Result<Told, Failure> {
        if let Some(mut kept) = self.connection.take() {
            match perform(&mut kept, job).await {
                // It was closed while nobody asked. All jobs may be done twice.
                Err(Failure::Broken { .. }) => {}
                told => {
                    self.connection = told.is_ok().then_some(kept);
                    return told;
                }
            }
        }
        let mut fresh = Connection::open(&self.options).await?;
        let told = perform(&mut fresh, job).await?;
        self.connection = Some(fresh);
        Ok(told)
    }
}

async fn perform(connection: &mut Connection, job: &Job) -> Result<Told, Failure> {
    match job {
        Job::Look { sort, address } => {
            let snapshot = Box::new(Snapshot::ask(connection, *sort).await?);
            let evidence = match address {
                Some(address) => Some(Box::new((address.clone(), evidence(connection, address).await?))),
                None => None,
            };
            Ok(Told::Stands { snapshot, evidence })
        }
        Job::Change(Change::Unblock(address)) => unblock(connection, address).await,
        Job::Change(Change::Ban(address)) => ban(connection, address).await,
    }
}

/// What is known of an address, or why nothing is.
async fn evidence(connection: &mut Connection, address: &str) -> Result<Result<Evidence, String>, Failure> {
    match connection.ask(Method::GET, &target(address), Bytes::new()).await {
        Ok(evidence) => Ok(Ok(evidence)),
        Err(Failure::Refused(why)) => Ok(Err(why)),
        Err(failure) => Err(failure),
    }
}

async fn unblock(connection: &mut Connection, address: &str) -> Result<Told, Failure> {
    let done: Unblocked = connection.ask(Method::DELETE, &target(address), Bytes::new()).await?;
    let (limits, bans) = (done.cleared.len(), done.bans_lifted);
    let mut text = format!("{} is free again: {limits} limits cleared, {bans} bans lifted", done.address);
    if !done.other_keys.is_empty() {
        text += &format!("; still held: {}", done.other_keys.join(", "));
    }
    Ok(Told::Changed(text))
}

async fn ban(connection: &mut Connection, address: &str) -> Result<Told, Failure> {
    let ban = NewBan {
        key: format!("ip:{address}"),
        lasts: BAN.to_owned(),
        reason: "by hand, in tollgate top".to_owned(),
    };
    let body = serde_json::to_vec(&ban).map_err(std::io::Error::from)?;
    let ban: Ban = connection.ask(Method::POST, "/v1/bans", body.into()).await?;
    Ok(Told::Changed(format!("{} is shut out for {BAN}", ban.key)))
}

fn target(address: &str) -> String {
    format!("/v1/blocked/{}", client::encoded(address))
}
