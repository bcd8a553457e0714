//! What a policy limits of one request.

use compact_str::CompactString;
use smallvec::{SmallVec, smallvec};

use super::identifier::{Facts, by_address, identifier};
use crate::config::model::{KeyRecipe, Missing};

/// Never empty, each once, in the order of the policy's keys.
pub type Identifiers = SmallVec<[CompactString; 2]>;

/// The request lacks what a policy with `missing: deny` limits by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request lacks what it is limited by")]
pub struct MissingIdentifier;

/// The identifiers that a policy's `keys` make of a request. A composite that lacks a part is missing.
/// [`Missing::Skip`] leaves out what is missing, [`Missing::Ip`] puts the address in its place. A
/// request that lacks all of them is limited by address, so that leaving something out is no way
/// around.
///
/// # Errors
/// With [`Missing::Deny`], if any is missing.
pub fn identifiers(
    keys: &[KeyRecipe],
    missing: Missing,
    facts: &Facts<'_>,
) -> Result<Identifiers, MissingIdentifier> {
    let mut found = Identifiers::new();
    for key in keys {
        let next = match (identifier(key, facts), missing) {
            (Some(identifier), _) => identifier,
            (None, Missing::Skip) => continue,
            (None, Missing::Ip) => by_address(facts),
            (None, Missing::Deny) => return Err(MissingIdentifier),
        };
        if !found.contains(&next) {
            found.push(next);
        }
    }
    Ok(if found.is_empty() { smallvec![by_address(facts)] } else { found })
}

/// The value of which a policy counts how many different ones there are, as `recipe` makes it of a request. `None`:
/// it lacks one, and [`Missing::Skip`] leaves it out; [`Missing::Ip`] takes the address for it.
///
/// # Errors
/// With [`Missing::Deny`], if it is missing.
pub fn value(
    recipe: &KeyRecipe,
    missing: Missing,
    facts: &Facts<'_>,
) -> Result<Option<CompactString>, MissingIdentifier> {
    match (identifier(recipe, facts), missing) {
        (Some(value), _) => Ok(Some(value)),
        (None, Missing::Skip) => Ok(None),
        (None, Missing::Ip) => Ok(Some(by_address(facts))),
        (None, Missing::Deny) => Err(MissingIdentifier),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::{super::identifier::tests::facts, *};
    use crate::config::model::KeyPart::{Ip, Path, Query, User};

    #[test]
    fn missing_identifiers_are_skipped_replaced_or_denied() {
        let headers = HeaderMap::new();
        let nobody = Facts { user: None, ..facts(&headers) };
        let [ip, user, both] = [vec![Ip], vec![User], vec![User, Path]].map(KeyRecipe);
        let query = KeyRecipe(vec![Query("none".to_owned())]);
        const ADDRESS: &str = "ip:203.0.113.7";

        for (keys, missing, expected) in [
            (vec![ip.clone()], Missing::Deny, Ok(vec![ADDRESS])),
            (vec![ip.clone(), user.clone()], Missing::Skip, Ok(vec![ADDRESS])),
            (vec![user.clone(), both.clone()], Missing::Skip, Ok(vec![ADDRESS])),
            (vec![ip.clone(), user.clone()], Missing::Ip, Ok(vec![ADDRESS])),
            (vec![user.clone(), both.clone()], Missing::Ip, Ok(vec![ADDRESS])),
            (vec![ip.clone(), both.clone()], Missing::Deny, Err(MissingIdentifier)),
        ] {
            let found = identifiers(&keys, missing, &nobody);
            assert_eq!(
                found.map(|found| found.to_vec()),
                expected.map(|all| all.into_iter().map(Into::into).collect())
            );
        }

        let acme = facts(&headers);
        let found = |keys: &[&KeyRecipe], missing| {
            let keys: Vec<_> = keys.iter().copied().cloned().collect();
            identifiers(&keys, missing, &acme).map(|found| found.join(" "))
        };
        assert_eq!(
            found(&[&ip, &user, &both], Missing::Deny).unwrap(),
            "ip:203.0.113.7 user:acme user:acme+path:/a/b"
        );
        assert_eq!(found(&[&user, &query], Missing::Skip).unwrap(), "user:acme");
        assert_eq!(found(&[&query, &user], Missing::Ip).unwrap(), "ip:203.0.113.7 user:acme");
        assert_eq!(found(&[&user, &user], Missing::Skip).unwrap(), "user:acme");
    }

    #[test]
    fn a_value_that_is_missing_is_skipped_replaced_or_denied() {
        let headers = HeaderMap::new();
        let acme = facts(&headers);
        let nobody = Facts { user: None, ..acme };
        let user = KeyRecipe(vec![User]);
        assert_eq!(value(&user, Missing::Deny, &acme), Ok(Some("user:acme".into())));
        assert_eq!(value(&user, Missing::Skip, &nobody), Ok(None));
        assert_eq!(value(&user, Missing::Ip, &nobody), Ok(Some("ip:203.0.113.7".into())));
        assert_eq!(value(&user, Missing::Deny, &nobody), Err(MissingIdentifier));
    }
}
