//! What workers hand over, made ready to be written down: with users as they may be, each with the hash by which he is
//! counted. That takes a while, and no lock.

use std::sync::Arc;

use compact_str::CompactString;
use ipnet::IpNet;

use super::{
    super::{UserNaming, address, names::NamedUser},
    denial::{Batch, Evidence, Tally, UserTally},
};
use crate::limit::algorithm::metadata_list::Entry;

/// The denials of one address.
#[derive(Debug)]
pub(in crate::abuse) struct AddressDenials {
    pub(in crate::abuse) address: IpNet,
    pub(in crate::abuse) tally: Tally,
    pub(in crate::abuse) users: Vec<DeniedUser>,
}

/// A user, and what was denied him.
#[derive(Debug)]
pub(in crate::abuse) struct DeniedUser {
    pub(in crate::abuse) named: NamedUser,
    pub(in crate::abuse) denied: u64,
    pub(in crate::abuse) last: i64,
}

/// Who filled a limit of an address.
#[derive(Debug)]
pub(in crate::abuse) struct LimitEvidence {
    pub(in crate::abuse) address: IpNet,
    pub(in crate::abuse) policy: usize,
    pub(in crate::abuse) identifier: CompactString,
    /// Oldest first.
    pub(in crate::abuse) entries: Vec<(Arc<Entry>, Option<NamedUser>)>,
}

/// All of a batch, and how many denials of it belong to no address.
pub(in crate::abuse) fn prepare(
    batch: Batch,
    names: &UserNaming,
) -> (Vec<AddressDenials>, Vec<LimitEvidence>, u64) {
    let mut lost = 0;
    let mut all = Vec::with_capacity(batch.tallies.len());
    for (shown, mut tally) in batch.tallies {
        let Some(address) = address::parse(&shown) else {
            lost += tally.denied;
            continue;
        };
        for limit in tally.limits.iter_mut().filter(|limit| !names.is_unchanged(&limit.identifier)) {
            limit.identifier = names.mask_key(&limit.identifier).into();
        }
        let who = |(user, UserTally { denied, last, .. }): (CompactString, UserTally)| {
            Some(DeniedUser { named: names.identify(&user)?, denied, last })
        };
        let users = std::mem::take(&mut tally.users).into_iter().filter_map(who).collect();
        all.push(AddressDenials { address, tally, users });
    }
    let limit_evidence =
        batch.evidence.iter().filter_map(|evidence| limit_evidence(evidence, names)).collect();
    (all, limit_evidence, lost)
}

fn limit_evidence(evidence: &Evidence, names: &UserNaming) -> Option<LimitEvidence> {
    Some(LimitEvidence {
        address: address::parse(&evidence.address)?,
        policy: evidence.policy,
        identifier: names.mask_key(&evidence.identifier).into(),
        entries: evidence.entries.iter().map(|entry| names.mask_entry(entry)).collect(),
    })
}
