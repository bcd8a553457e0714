//! Meters a response that tells its cost: reads it as it passes, and charges the request's reservation at its end.

use http::{HeaderMap, HeaderName, StatusCode};
use smallvec::SmallVec;

use super::{
    checks::{BYTES_PER_TOKEN, number},
    reservation::{Charge, MissingReason, ReservationGuard, ReservedCost},
};
use crate::{
    config::model::{Measure, MissingCost, NumberSource, ResponseCost},
    response_cost::{BodyScanner, FoundNumber, MAX_NUMBER, Unscannable},
};

/// Meters one response. Dropped before the response's end, it charges what has passed.
#[derive(Debug)]
pub(super) struct CostMeter {
    reservation: ReservationGuard,
    /// One for each cost of the reservation, in their order.
    readings: SmallVec<[CostReading; 1]>,
    status: StatusCode,
    /// Bytes of the body that have passed.
    passed: u64,
    is_over: bool,
}

/// What the response has told of one cost so far.
#[derive(Debug)]
struct CostReading {
    /// In its header and its trailers.
    in_fields: FoundNumber,
    body: BodyReading,
}

#[derive(Debug)]
enum BodyReading {
    /// It tells nothing.
    None,
    /// It may tell something in a coding that is not read.
    Coded,
    Scanned(Box<BodyScanner>),
    /// The scanner of the reading with this index reads the same numbers.
    Shared(usize),
}

impl CostMeter {
    /// The meter of a response with this head. `None`: it tells no cost.
    pub(super) fn new(
        reservation: &ReservationGuard,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Option<Box<Self>> {
        if reservation.costs().is_empty() {
            return None;
        }
        let mut readings: SmallVec<[CostReading; 1]> = SmallVec::new();
        for (index, ReservedCost { settings, .. }) in reservation.costs().iter().enumerate() {
            let known =
                reservation.costs()[..index].iter().position(|other| other.settings.body == settings.body);
            let body = match (&settings.body, known) {
                (None, _) => BodyReading::None,
                (Some(_), Some(known)) => BodyReading::Shared(known),
                (Some(sum), None) => match BodyScanner::new(sum, headers) {
                    Ok(scanner) => BodyReading::Scanned(Box::new(scanner)),
                    Err(Unscannable::ContentCoding) => BodyReading::Coded,
                    Err(Unscannable::MediaType) => BodyReading::None,
                },
            };
            readings.push(CostReading { in_fields: in_header(settings, headers), body });
        }
        let reservation = reservation.clone();
        Some(Box::new(Self { reservation, readings, status, passed: 0, is_over: false }))
    }

    /// Whether the end of the response may tell more than its header.
    pub(super) fn needs_end(&self) -> bool {
        self.reservation.costs().iter().any(|ReservedCost { settings, .. }| {
            settings.measure != Measure::Bytes && !settings.is_told_by_header()
        })
    }

    /// Whether trailers may tell a cost.
    pub(super) fn reads_trailers(&self) -> bool {
        let mut numbers = self.reservation.costs().iter().flat_map(|cost| cost.settings.numbers());
        numbers.any(|number| matches!(number.source, NumberSource::Trailer(_)))
    }

    /// Reads a piece of the body. Returns how many bytes of it were read: less than all where they are compressed and expand
    /// far.
    #[must_use]
    pub(super) fn read(&mut self, mut piece: &[u8]) -> usize {
        let mut is_first = true;
        for reading in &mut self.readings {
            let BodyReading::Scanned(scanner) = &mut reading.body else { continue };
            let mut read = scanner.read(piece);
            match is_first {
                true => piece = &piece[..read],
                // The others read the same bytes.
                false => {
                    while read < piece.len() {
                        read += scanner.read(&piece[read..]);
                    }
                }
            }
            is_first = false;
        }
        self.passed += piece.len() as u64;
        let mut costs_more = false;
        for cost in self.reservation.costs() {
            if cost.settings.measure == Measure::Bytes && self.passed > cost.units.get() {
                let step = cost.settings.reserve.default.max(1);
                cost.units.set(cost.units.get() + (self.passed - cost.units.get()).div_ceil(step) * step);
                costs_more = true;
            }
        }
        if costs_more {
            self.reservation.costs_more();
        }
        piece.len()
    }

    /// Reads the trailers.
    pub(super) fn read_trailers(&mut self, trailers: &HeaderMap) {
        for (reading, cost) in self.readings.iter_mut().zip(self.reservation.costs()) {
            for number in cost.settings.numbers() {
                if let NumberSource::Trailer(name) = &number.source {
                    reading.in_fields = reading.in_fields.plus(in_field(trailers, name, number.times));
                }
            }
        }
    }

    /// The response has ended.
    pub(super) fn finish(mut self) {
        self.charge(true);
    }

    fn charge(&mut self, is_complete: bool) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        for (index, cost) in self.reservation.costs().iter().enumerate() {
            cost.set_charge(self.charge_of(index, cost, is_complete));
        }
    }

    fn charge_of(&self, index: usize, cost: &ReservedCost, is_complete: bool) -> Charge {
        let ReservedCost { settings, max_excess, .. } = cost;
        if settings.measure == Measure::Bytes {
            return Charge::reported(self.passed);
        }
        let reserved = cost.units.get();
        let is_error = self.status.is_client_error() || self.status.is_server_error();
        let found = self.found(index);
        let charge = match found {
            FoundNumber::Number(units) if is_complete || settings.is_told_by_header() => {
                Charge::reported(units)
            }
            FoundNumber::Nothing if is_error => Charge::NONE,
            // Leaving before the last chunk is no way around.
            _ if !is_complete => {
                Charge::reported(reserved.max(self.estimate(index, cost)).max(found.number().unwrap_or(0)))
            }
            FoundNumber::Unusable => self.missing(index, cost, MissingReason::FaultyNumber),
            _ => {
                let reason = self.readings.get(index).map_or(MissingReason::NoNumber, CostReading::reason);
                self.missing(index, cost, reason)
            }
        };
        Charge { units: charge.units.min(reserved.saturating_add(*max_excess)), ..charge }
    }

    /// The charge for a whole response that does not tell the cost of this index.
    fn missing(&self, index: usize, cost: &ReservedCost, reason: MissingReason) -> Charge {
        let charge = cost.missing(reason);
        match cost.settings.missing {
            MissingCost::Reserved => Charge { units: charge.units.max(self.estimate(index, cost)), ..charge },
            MissingCost::Units(_) => charge,
        }
    }

    /// About the tokens of the text that has passed: not more than the request asks for. With those of the prompt, if they
    /// were estimated for the reservation.
    fn estimate(&self, index: usize, cost: &ReservedCost) -> u64 {
        if !cost.settings.counts_tokens() {
            return 0;
        }
        let text = self.scanner(index).map_or(0, BodyScanner::text_bytes);
        let output = (text / BYTES_PER_TOKEN).min(self.reservation.max_output());
        let prompt = if cost.settings.reserve.prompt { self.reservation.request_bytes() } else { 0 };
        prompt / BYTES_PER_TOKEN + output
    }

    fn scanner(&self, index: usize) -> Option<&BodyScanner> {
        match &self.readings.get(index)?.body {
            BodyReading::None | BodyReading::Coded => None,
            BodyReading::Scanned(scanner) => Some(scanner),
            BodyReading::Shared(other) => match &self.readings.get(*other)?.body {
                BodyReading::Scanned(scanner) => Some(scanner),
                _ => None,
            },
        }
    }

    /// What the response has told so far of the cost of this index.
    fn found(&self, index: usize) -> FoundNumber {
        let Some(reading) = self.readings.get(index) else { return FoundNumber::Nothing };
        let in_body = self.scanner(index).map_or(FoundNumber::Nothing, BodyScanner::found);
        reading.in_fields.plus(in_body)
    }
}

impl CostReading {
    /// Why it has no number.
    fn reason(&self) -> MissingReason {
        match self.body {
            BodyReading::Coded => MissingReason::ContentCoding,
            _ => MissingReason::NoNumber,
        }
    }
}

impl Drop for CostMeter {
    fn drop(&mut self) {
        self.charge(false);
    }
}

fn in_header(settings: &ResponseCost, headers: &HeaderMap) -> FoundNumber {
    settings.numbers().iter().fold(FoundNumber::Nothing, |found, number| match &number.source {
        NumberSource::Header(name) => found.plus(in_field(headers, name, number.times)),
        _ => found,
    })
}

/// The number in the field of this name.
fn in_field(headers: &HeaderMap, name: &HeaderName, times: u64) -> FoundNumber {
    let mut lines = headers.get_all(name).iter();
    let number = match (lines.next(), lines.next()) {
        (None, _) => return FoundNumber::Nothing,
        (Some(only), None) => number(only.as_bytes().trim_ascii()),
        (Some(_), Some(_)) => None,
    };
    match number.filter(|number| *number <= MAX_NUMBER) {
        Some(number) => FoundNumber::Number(number.saturating_mul(times)),
        None => FoundNumber::Unusable,
    }
}
