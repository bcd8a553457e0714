use super::{Mapping, Setting, Settings, addresses, routes, upstreams};
use crate::config::model::Access;

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
    RouteSettings = routes::ROUTE;
}

pub(in crate::config) struct RouteDefaults;
impl Settings for RouteDefaults {
    const OWN: &'static [Setting] = {
        static LIST: [Setting; 5] =
            [routes::MATCHING, routes::PATHS, routes::METHOD_OVERRIDE, routes::TRAILERS, routes::EARLY_HINTS];
        &LIST
    };
    const PARTS: &'static [&'static [Setting]] = &[];
    fn mapping() -> &'static Mapping {
        &routes::ROUTE
    }
}

impl Settings for Access {
    const OWN: &'static [Setting] = {
        static LIST: [Setting; 2] = [addresses::DENY, addresses::ALLOW];
        &LIST
    };
    const PARTS: &'static [&'static [Setting]] = &[];
    fn mapping() -> &'static Mapping {
        &routes::ROUTE
    }
}
