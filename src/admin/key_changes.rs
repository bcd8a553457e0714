//! Changes of API keys, of which the store decides: each is made of one version of a key, and only if the store has that
//! version still. So no change undoes another one, at whichever instances they are made.

use std::sync::Arc;

use super::{
    context::{HandlerContext, is_shared},
    extract::{IfMatch, Operator},
    problem::Problem,
};
use crate::api_keys::{ApiKey, ChangeState, KeyMark, KeyState, PutError, Stamp, operations::OperationError};

/// Most versions that a change is tried on: each but the last was replaced by another change meanwhile.
const MAX_TRIES: usize = 32;

/// A change that was made.
pub(super) struct Made {
    pub(super) key: ApiKey,
    /// Whether the other instances can know it.
    pub(super) is_shared: bool,
}

/// Who makes a change.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChangeAuthor<'a> {
    pub(super) by: &'a Operator,
    /// The action in the audit log.
    pub(super) action: &'static str,
    pub(super) without_reply: WithoutReply,
}

/// Whether a change is made at this instance if the store does not reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WithoutReply {
    /// It is, and the store gets it later: nothing else that is done to the key can contradict it.
    Made,
    NotMade,
}

/// The key with this ID, unless it was deleted.
pub(super) fn existing(context: &HandlerContext, id: &str) -> Result<Arc<ApiKey>, Problem> {
    let key = context.state.api_keys.get(id).filter(|key| !matches!(key.state, KeyState::Deleted { .. }));
    key.ok_or_else(|| Problem::not_found(format!("there is no key {}", id.escape_debug())))
}

/// Makes a change of the key with this ID: `operation` is applied to its newest version, which must be one of
/// `if_match`.
pub(super) async fn change(
    context: &HandlerContext,
    id: &str,
    if_match: &IfMatch,
    author: ChangeAuthor<'_>,
    mut operation: impl FnMut(&ApiKey) -> Result<ApiKey, OperationError>,
) -> Result<Made, Problem> {
    let author = match &if_match.0 {
        Some(_) => ChangeAuthor { without_reply: WithoutReply::NotMade, ..author },
        None => author,
    };
    for _ in 0..MAX_TRIES {
        let known = expected(context, id, if_match).await?;
        let key = operation(&known)?;
        if let Some(made) = propose(context, key, Some(Stamp::of(&known)), author).await? {
            return Ok(made);
        }
    }
    let detail = format!("key {id} is being changed by others all the time: nothing was changed, try again");
    Err(Problem::unavailable(detail))
}

/// Stores a new key.
pub(super) async fn create(
    context: &HandlerContext,
    key: ApiKey,
    author: ChangeAuthor<'_>,
) -> Result<Made, Problem> {
    match propose(context, key.clone(), None, author).await? {
        Some(made) => Ok(made),
        None => Err(PutError::IdInUse(key.id).into()),
    }
}

/// The newest version of the key, if `if_match` has it.
async fn expected(context: &HandlerContext, id: &str, if_match: &IfMatch) -> Result<Arc<ApiKey>, Problem> {
    let known = existing(context, id)?;
    let Some(versions) = &if_match.0 else { return Ok(known) };
    let versions: Vec<Stamp> = versions.iter().filter_map(|version| version.parse().ok()).collect();
    let newest = versions.iter().max();
    // A version that is greater than the one that is known here was made at another instance a moment ago.
    is_shared(context, || context.state.api_keys.get(id).map(|key| Stamp::of(&key)).as_ref() >= newest).await;
    let known = existing(context, id)?;
    if versions.contains(&Stamp::of(&known)) {
        return Ok(known);
    }
    let detail = format!(
        "key {id} was changed since: nothing was changed. Read it again, and decide whether the change is still right; send \
         it with the version in its ETag as If-Match, or without If-Match"
    );
    Err(Problem::outdated(detail))
}

/// Has the store decide on a change of the version `base` of a key. `None`: the store has another version, which is known
/// here now.
async fn propose(
    context: &HandlerContext,
    key: ApiKey,
    base: Option<Stamp>,
    ChangeAuthor { by, action, without_reply }: ChangeAuthor<'_>,
) -> Result<Option<Made>, Problem> {
    let keys = &context.state.api_keys;
    let change = keys.propose(key, base)?;
    is_shared(context, || change.is_decided()).await;
    let key = change.key.clone();
    match keys.withdraw(&change) {
        ChangeState::Made => Ok(Some(Made { key, is_shared: true })),
        ChangeState::Outdated => Ok(None),
        ChangeState::NoRoom => Err(PutError::TooMany.into()),
        ChangeState::Waiting | ChangeState::Asked if without_reply == WithoutReply::Made => {
            let _shared_later: KeyMark = keys.put(key.clone())?;
            Ok(Some(Made { key, is_shared: false }))
        }
        ChangeState::Waiting | ChangeState::Failed => Err(PutError::Away.into()),
        ChangeState::Asked => {
            context.audit(by, action, &key.id, "the store has not replied: it may have been done or not");
            Err(Problem::unavailable(format!(
                "the store of keys has not replied: key {} may have been changed or not. Look at it before you try again",
                key.id
            )))
        }
    }
}
