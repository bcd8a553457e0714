use super::{Mapping, Setting, Settings, upstreams};
use crate::config::model::{Retry, Timeouts};

macro_rules! shim {
    ($($name:ident = $of:expr;)*) => {
        $(pub(in crate::config) struct $name;
        impl Settings for $name {
            const OWN: &'static [Setting] = &[];
            const PARTS: &'static [&'static [Setting]] = &[];
            fn mapping() -> &'static Mapping {
                &$of
            }
        })*
    };
}

shim! {
    UpstreamSettings = upstreams::UPSTREAM;
    ResolverSettings = upstreams::RESOLVER;
}

// The settings of upstreams that routes have, too.
impl Settings for Timeouts {
    const OWN: &'static [Setting] = &[];
    const PARTS: &'static [&'static [Setting]] = &[];
    fn mapping() -> &'static Mapping {
        &upstreams::TIMEOUTS
    }
}
impl Settings for Retry {
    const OWN: &'static [Setting] = &[];
    const PARTS: &'static [&'static [Setting]] = &[];
    fn mapping() -> &'static Mapping {
        &upstreams::RETRY
    }
}
