//! When a schedule's ticks are: five fields of cron, read by the clock of a time zone.
//!
//! What must stay true where clocks are put forward or back: a time of day comes once a day. One that the clock leaps over comes at the leap, one that
//! it shows twice comes the first time. Only an expression whose hours begin with `*` goes by the time that passes, and so through both.

use counterfoil_core::Timestamp;
use counterfoil_core::run::schedule::Ticks;
use cronexpr::{Crontab, MakeTimestamp};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp as Instant};

/// Longer than any clock is ever put forward or back.
const LEAP_MAX: SignedDuration = SignedDuration::from_hours(26);

const FIELDS: &str = "minute, hour, day of month, month, day of week, as in \"0 9 * * MON-FRI\"";

const SHORT: [(&str, &str); 6] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
];

#[derive(Debug)]
pub struct Cron {
    /// Of the zone's own clock, as if that were UTC; or, where `passing`, of the zone.
    crontab: Crontab,
    zone: TimeZone,
    /// Goes by the time that passes.
    passing: bool,
}

impl Cron {
    /// Says what is wrong with which.
    pub fn parse(cron: &str, zone: &str) -> Result<Self, String> {
        let fields = SHORT.iter().find(|(short, _)| *short == cron.trim()).map_or(cron, |(_, fields)| fields);
        let count = fields.split_whitespace().count();
        if count != 5 {
            return Err(format!("`cron` {cron:?} has {count} fields; it needs five: {FIELDS}"));
        }
        let time_zone = TimeZone::get(zone)
            .map_err(|_| format!("`zone` {zone:?} is not in the time zone database; write one as Europe/Berlin, or UTC"))?;
        let passing = fields.split_whitespace().nth(1).is_some_and(|hours| hours.starts_with('*'));
        let read = cronexpr::parse_crontab(&format!("{fields} {}", if passing { zone } else { "UTC" }));
        let crontab = read.map_err(|error| {
            let text = error.to_string();
            let why = text.rsplit("^ ").next().unwrap_or_default().trim();
            let why = if why.is_empty() { "this cannot be read" } else { why };
            format!("`cron` {cron:?}: {why}; the fields are {FIELDS}")
        })?;
        Ok(Self { crontab, zone: time_zone, passing })
    }

    fn after(&self, after: Instant) -> Option<Instant> {
        if self.passing {
            return self.crontab.find_next(MakeTimestamp(after)).ok().map(|zoned| zoned.timestamp());
        }
        // Shown by the clock no later than `after` is, however it was put.
        let shown = self.zone.to_datetime(after).checked_sub(LEAP_MAX).ok()?;
        let mut shown = TimeZone::UTC.to_timestamp(shown).ok()?;
        loop {
            shown = self.crontab.find_next(MakeTimestamp(shown)).ok()?.timestamp();
            let comes = self.comes(TimeZone::UTC.to_datetime(shown))?;
            if comes > after {
                return Some(comes);
            }
        }
    }

    /// When the clock first shows this, or leaps over it. Never earlier for a later one.
    fn comes(&self, shown: DateTime) -> Option<Instant> {
        let ambiguous = self.zone.to_ambiguous_timestamp(shown);
        match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => ambiguous.earlier().ok(),
            AmbiguousOffset::Gap { .. } => {
                let behind = ambiguous.later().ok()?;
                let leap = self.zone.preceding(behind.checked_add(SignedDuration::from_nanos(1)).ok()?).next()?;
                Some(leap.timestamp())
            }
        }
    }
}

impl Ticks for Cron {
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.after(Instant::from_microsecond(after.0).ok()?).map(|tick| Timestamp(tick.as_microsecond()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ticks after a time, as UTC.
    fn ticks(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let cron = Cron::parse(cron, zone).unwrap();
        let mut at: Instant = after.parse().unwrap();
        let mut found = Vec::new();
        for _ in 0..count {
            at = cron.after(at).unwrap();
            found.push(at.to_string().trim_end_matches(":00Z").to_owned());
        }
        found
    }

    #[test]
    fn a_time_of_day_comes_once_a_day_whatever_is_done_to_the_clock() {
        // Put forward on 2027-03-28 from 02:00 to 03:00, back on 2026-10-25 from 03:00 to 02:00.
        let spring = ticks("30 2 * * *", "Europe/Berlin", "2027-03-26T12:00:00Z", 3);
        assert_eq!(spring, ["2027-03-27T01:30", "2027-03-28T01:00", "2027-03-29T00:30"]);
        let autumn = ticks("30 2 * * *", "Europe/Berlin", "2026-10-23T12:00:00Z", 4);
        assert_eq!(autumn, ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30", "2026-10-27T01:30"]);
        // Also asked for in the middle of it.
        assert_eq!(ticks("30 2 * * *", "Europe/Berlin", "2026-10-25T01:30:00Z", 1), ["2026-10-26T01:30"]);
        let both = ticks("0,30 2,3 * * *", "Europe/Berlin", "2027-03-28T00:00:00Z", 3);
        assert_eq!(both, ["2027-03-28T01:00", "2027-03-28T01:30", "2027-03-29T00:00"], "03:00 is one tick, not three");
    }

    #[test]
    fn what_goes_by_passing_time_goes_through_both() {
        let autumn = ticks("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", 4);
        assert_eq!(autumn, ["2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:30", "2026-10-25T02:00"]);
        let spring = ticks("15 * * * *", "Europe/Berlin", "2027-03-28T00:00:00Z", 3);
        assert_eq!(spring, ["2027-03-28T00:15", "2027-03-28T01:15", "2027-03-28T02:15"]);
    }

    #[test]
    fn fields_words_and_short_forms() {
        assert_eq!(ticks("0 9 * * MON-FRI", "UTC", "2026-11-20T10:00:00Z", 2), ["2026-11-23T09:00", "2026-11-24T09:00"]);
        assert_eq!(ticks("@monthly", "UTC", "2026-11-20T10:00:00Z", 2), ["2026-12-01T00:00", "2027-01-01T00:00"]);
        assert_eq!(ticks("0 0 29 2 *", "UTC", "2026-11-20T10:00:00Z", 1), ["2028-02-29T00:00"]);
    }

    #[test]
    fn every_mistake_names_its_field() {
        let wrong = |cron: &str, zone: &str| Cron::parse(cron, zone).unwrap_err();
        assert!(wrong("* * * *", "UTC").contains("has 4 fields; it needs five: minute"));
        assert!(wrong("0 0 9 * * *", "UTC").contains("has 6 fields"));
        assert!(wrong("61 * * * *", "UTC").contains("61"), "{}", wrong("61 * * * *", "UTC"));
        assert!(wrong("a b c d e", "UTC").starts_with("`cron` \"a b c d e\""));
        assert!(wrong("* * * * *", "Europe/Atlantis").contains("`zone` \"Europe/Atlantis\""));
        assert!(wrong("* * * * *", "UTC extra").contains("zone"));
        assert_eq!(Cron::parse("0 0 30 2 *", "UTC").unwrap().next(Timestamp(0)), None, "there is no 30th of February");
    }
}
