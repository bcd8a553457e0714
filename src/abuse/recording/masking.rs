//! Masks users' names in the workers' records under the current settings, and hashes each user for the distinct
//! count. This takes a while, and is done without a lock.

use std::{borrow::Cow, sync::Arc};

use compact_str::CompactString;
use ipnet::IpNet;

use super::{
    super::{UserNaming, address, names::NamedUser},
    denial::{CapturedEvidence, DenialTally, TickDenials, UserTally},
};
use crate::limit::algorithm::metadata_list::Entry;

/// The denials of one address.
#[derive(Debug)]
pub(in crate::abuse) struct AddressDenials {
    pub(in crate::abuse) address: IpNet,
    pub(in crate::abuse) tally: DenialTally,
    pub(in crate::abuse) users: Vec<DeniedUser>,
}

/// A user and their denials.
#[derive(Debug)]
pub(in crate::abuse) struct DeniedUser {
    pub(in crate::abuse) named: NamedUser,
    pub(in crate::abuse) denied: u64,
    pub(in crate::abuse) verified: u64,
    pub(in crate::abuse) last: i64,
}

/// The requests that filled a limit of an address.
#[derive(Debug)]
pub(in crate::abuse) struct LimitEvidence {
    pub(in crate::abuse) address: IpNet,
    pub(in crate::abuse) policy: usize,
    pub(in crate::abuse) identifier: CompactString,
    /// Oldest first.
    pub(in crate::abuse) entries: Vec<(Arc<Entry>, Option<NamedUser>)>,
}

/// Masks a worker's tick, and counts its denials with an invalid address.
pub(in crate::abuse) fn mask_denials(
    batch: TickDenials,
    names: &UserNaming,
) -> (Vec<AddressDenials>, Vec<LimitEvidence>, u64) {
    let mut lost = 0;
    let mut all = Vec::with_capacity(batch.tallies.len());
    for (address_text, mut tally) in batch.tallies {
        let Some(address) = address::parse(&address_text) else {
            lost += tally.denied;
            continue;
        };
        for limit in &mut tally.limits {
            if let Cow::Owned(masked) = names.mask_key(&limit.identifier) {
                limit.identifier = masked.into();
            }
        }
        let who = |(user, UserTally { denied, verified, last, .. }): (CompactString, UserTally)| {
            Some(DeniedUser { named: names.identify(&user)?, denied, verified, last })
        };
        let users = std::mem::take(&mut tally.users).into_iter().filter_map(who).collect();
        all.push(AddressDenials { address, tally, users });
    }
    let limit_evidence =
        batch.evidence.iter().filter_map(|evidence| limit_evidence(evidence, names)).collect();
    (all, limit_evidence, lost)
}

fn limit_evidence(evidence: &CapturedEvidence, names: &UserNaming) -> Option<LimitEvidence> {
    Some(LimitEvidence {
        address: address::parse(&evidence.address)?,
        policy: evidence.policy,
        identifier: names.mask_key(&evidence.identifier).into(),
        entries: evidence.entries.iter().map(|entry| names.mask_entry(entry)).collect(),
    })
}
