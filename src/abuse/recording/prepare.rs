//! What workers hand over, made ready to be written down: with users as they may be, each with the hash by which he is
//! counted. That takes a while, and no lock.

use std::sync::Arc;

use compact_str::CompactString;
use ipnet::IpNet;

use super::{
    super::{Names, address, names::Named},
    denial::{Asked, Batch, Evidence, Tally},
};
use crate::limit::algorithm::metadata_list::Entry;

/// The denials of one address.
#[derive(Debug)]
pub(in crate::abuse) struct Noted {
    pub(in crate::abuse) address: IpNet,
    pub(in crate::abuse) tally: Tally,
    pub(in crate::abuse) users: Vec<Who>,
}

/// A user, and what was denied him.
#[derive(Debug)]
pub(in crate::abuse) struct Who {
    pub(in crate::abuse) named: Named,
    pub(in crate::abuse) denied: u64,
    pub(in crate::abuse) last: i64,
}

/// Who filled a limit of an address.
#[derive(Debug)]
pub(in crate::abuse) struct Filled {
    pub(in crate::abuse) address: IpNet,
    pub(in crate::abuse) policy: usize,
    pub(in crate::abuse) identifier: CompactString,
    /// Oldest first.
    pub(in crate::abuse) entries: Vec<(Arc<Entry>, Option<Named>)>,
}

/// All of a batch, and how many denials of it belong to no address.
pub(in crate::abuse) fn noted(batch: Batch, names: &Names) -> (Vec<Noted>, Vec<Filled>, u64) {
    let mut lost = 0;
    let mut all = Vec::with_capacity(batch.tallies.len());
    for (shown, mut tally) in batch.tallies {
        let Some(address) = address::parse(&shown) else {
            lost += tally.denied;
            continue;
        };
        for limit in tally.limits.iter_mut().filter(|limit| !names.shows(&limit.identifier)) {
            limit.identifier = names.key(&limit.identifier).into();
        }
        let who = |(user, Asked { denied, last, .. }): (CompactString, Asked)| {
            Some(Who { named: names.named(&user)?, denied, last })
        };
        let users = std::mem::take(&mut tally.users).into_iter().filter_map(who).collect();
        all.push(Noted { address, tally, users });
    }
    let filled = batch.evidence.iter().filter_map(|evidence| filled(evidence, names)).collect();
    (all, filled, lost)
}

fn filled(evidence: &Evidence, names: &Names) -> Option<Filled> {
    Some(Filled {
        address: address::parse(&evidence.address)?,
        policy: evidence.policy,
        identifier: names.key(&evidence.identifier).into(),
        entries: evidence.entries.iter().map(|entry| names.entry(entry)).collect(),
    })
}
