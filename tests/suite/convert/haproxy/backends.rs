//! Backends: their servers, and rules of their own.

use super::generator::{Kind, Writer};

impl Writer<'_> {
    pub fn backend(&mut self, name: &str, from: &str) {
        self.section(format!("backend {name}{from}"), |writer| {
            writer.odds(Kind::Backend);
            writer.unknown(Kind::Backend);
            if writer.dice.chance(40) {
                writer.met("rules of a backend");
                writer.acl_lines();
                for _ in 0..writer.dice.number(1..4) {
                    writer.rule(Kind::Backend);
                }
            }
            if let Some(line) = writer.dice.maybe(
                30,
                &[
                    "balance leastconn",
                    "balance source",
                    "balance uri",
                    "balance hdr(host)",
                    "option httpchk GET /health",
                    "http-check expect status 200",
                    "http-reuse safe",
                    "retries 2",
                    "option forwardfor",
                    "fullconn 100",
                ],
            ) {
                writer.line(line);
            }
            writer.servers();
        });
    }

    pub fn servers(&mut self) {
        if self.dice.chance(10) {
            self.line("default-server maxconn 100");
        }
        let nth = self.dice.number(..4);
        let address = |nth: usize| self.places.origins[nth];
        let lines = match nth {
            3 => vec![format!("server first {}", address(3)), format!("server second {}", address(4))],
            nth => vec![format!("server only {}", address(nth))],
        };
        for line in lines {
            let words =
                self.dice.maybe(15, &[" maxconn 50", " weight 10", " check", " check inter 1s fall 3"]);
            self.line(format!("{line}{}", words.unwrap_or("")));
        }
        if self.dice.chance(5) {
            self.noted("backup");
            self.line(format!("server spare {} backup", self.places.origins[(nth + 1) % 3]));
        }
    }
}
