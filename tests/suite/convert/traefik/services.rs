//! Services.

use super::{
    super::{origins::HEALTH, standing::STICKY},
    generator::Writer,
};

const NAMES: [&str; 8] = ["one", "two", "three", "pool", "weighted", "based", "own-host", "sticky"];

impl Writer<'_> {
    pub fn services(&mut self) {
        let weighted = [
            (6, "one"),
            (6, "two"),
            (3, "three"),
            (4, "pool"),
            (2, "weighted"),
            (1, "based"),
            (2, "own-host"),
            (1, "sticky"),
        ];
        let count = self.dice.number(1..4);
        let mut chosen: Vec<&'static str> = (0..count).map(|_| self.dice.weighted(&weighted)).collect();
        // Others that `weighted` names.
        if chosen.contains(&"weighted") {
            chosen.extend(["one", "two"]);
        }
        self.services = NAMES.into_iter().filter(|name| chosen.contains(name)).collect();
    }

    pub fn need_service(&mut self, name: &'static str) {
        if !self.services.contains(&name) {
            self.services.push(name);
        }
    }
}

/// The definition of a service.
pub fn text(writer: &mut Writer<'_>, name: &'static str) -> String {
    if name != "one" {
        writer.met(name);
    }
    let nth = match name {
        "one" | "weighted" | "sticky" => 0,
        "two" | "own-host" => 1,
        _ => 2,
    };
    let origins = writer.places.origins;
    let url = |nth: usize, path: &str| format!("url: \"http://{}{path}\"", origins[nth]);
    let slash = if writer.dice.chance(20) { "/" } else { "" };
    match name {
        "pool" => {
            let [one, other] = [url(3, slash), url(4, slash)];
            format!("loadBalancer: {{ servers: [{{ {one} }}, {{ {other} }}] }}")
        }
        "weighted" => {
            // All of the weight is on one, or which gets a request would be chance.
            "weighted: { services: [{ name: one, weight: 3 }, { name: two, weight: 0 }] }".to_owned()
        }
        "based" => {
            let path = writer.dice.pick(&["/base", "/base/"]);
            let preserve = writer.dice.pick(&["", ", preservePath: true"]);
            format!("loadBalancer: {{ servers: [{{ {}{preserve} }}] }}", url(nth, path))
        }
        "own-host" => {
            format!("loadBalancer: {{ passHostHeader: false, servers: [{{ {} }}] }}", url(nth, slash))
        }
        "sticky" => {
            format!(
                "loadBalancer: {{ sticky: {{ cookie: {{ name: {STICKY} }} }}, servers: [{{ {} }}] }}",
                url(nth, slash)
            )
        }
        _ => {
            let more = writer.dice.weighted(&[
                (12, String::new()),
                (1, "passHostHeader: true, ".to_owned()),
                (1, "responseForwarding: { flushInterval: 10ms }, ".to_owned()),
                (1, format!("healthCheck: {{ path: {HEALTH}, interval: 60s }}, ")),
            ]);
            format!("loadBalancer: {{ {more}servers: [{{ {} }}] }}", url(nth, slash))
        }
    }
}
