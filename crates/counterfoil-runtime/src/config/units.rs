//! Durations, sizes, rates and HTTP statuses as people write them.
//!
//! A number without its unit is refused: seconds to one reader are milliseconds to the next.

use std::time::Duration;

use counterfoil_core::policy::Rate;

use crate::spec::StatusRange;

/// Why a text is not what it should be, and what was probably meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    pub why: String,
    pub suggestion: Option<String>,
}

impl Unreadable {
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), suggestion: None }
    }
    fn suggest(self, suggestion: impl Into<String>) -> Self {
        Self { suggestion: Some(suggestion.into()), ..self }
    }
}

/// Longer than anything waits; keeps sums of times far from overflow.
const DURATION_MAX: Duration = Duration::from_secs(3650 * 86_400);

const DURATIONS: &str = "a duration is a whole number and a unit: 500ms, 10s, 5m, 24h, 7d";

pub fn duration(text: &str) -> Result<Duration, Unreadable> {
    let (number, unit) = split(text);
    let unit = match unit {
        "" if whole(number).is_some() => {
            return Err(Unreadable::new(format!("{text:?} has no unit; {DURATIONS}")).suggest(format!("{number}s")));
        }
        exact @ ("ms" | "s" | "m" | "h" | "d") => exact,
        other => {
            let why = format!("{text:?} is not a duration; {DURATIONS}");
            return Err(match (whole(number), unit_meant(other)) {
                (Some(n), Some(unit)) => Unreadable::new(why).suggest(format!("{n}{unit}")),
                _ => Unreadable::new(why),
            });
        }
    };
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => 86_400_000,
    };
    let Some(count) = whole(number) else {
        let unreadable = Unreadable::new(format!("{text:?} is not a duration; {DURATIONS}"));
        return Err(match fraction_ms(number, unit_ms) {
            Some(ms) => unreadable.suggest(shown(Duration::from_millis(ms))),
            None => unreadable,
        });
    };
    match count.checked_mul(unit_ms).map(Duration::from_millis) {
        Some(duration) if duration <= DURATION_MAX => Ok(duration),
        _ => Err(Unreadable::new(format!("{text:?} is more than ten years"))),
    }
}

/// A duration as it would be written.
pub fn shown(duration: Duration) -> String {
    let ms = duration.as_millis();
    for (unit_ms, unit) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")] {
        if ms >= unit_ms && ms.is_multiple_of(unit_ms) {
            return format!("{}{unit}", ms / unit_ms);
        }
    }
    format!("{ms}ms")
}

pub fn size(text: &str) -> Result<usize, Unreadable> {
    const SIZES: &str = "a size is a whole number and a unit: 512B, 64KiB, 1MiB";
    let (number, unit) = split(text);
    let unreadable = || Unreadable::new(format!("{text:?} is not a size; {SIZES}"));
    let count = whole(number).ok_or_else(unreadable)?;
    let factor = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "" => return Err(Unreadable::new(format!("{text:?} has no unit; {SIZES}")).suggest(format!("{number}B"))),
        other => {
            let meant = match other.to_ascii_lowercase().as_str() {
                "b" | "byte" | "bytes" => "B",
                "k" | "kb" | "kib" => "KiB",
                "m" | "mb" | "mib" => "MiB",
                "g" | "gb" | "gib" => "GiB",
                _ => return Err(unreadable()),
            };
            return Err(unreadable().suggest(format!("{number}{meant}")));
        }
    };
    let bytes = count.checked_mul(factor).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| Unreadable::new(format!("{text:?} is more than can be counted")))
}

pub fn rate(text: &str) -> Result<Rate, Unreadable> {
    let unreadable = || Unreadable::new(format!("{text:?} is not a rate; a rate is a number per time: 50/s, 100/m, 1000/h"));
    let (count, per) = match text.split_once('/') {
        Some((count, per)) => (count.trim(), per.trim()),
        None if whole(text).is_some() => return Err(unreadable().suggest(format!("{text}/s"))),
        None => return Err(unreadable()),
    };
    let count = whole(count).and_then(|n| u32::try_from(n).ok()).ok_or_else(unreadable)?;
    let per = match per {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        other => {
            let meant = unit_meant(other).filter(|unit| *unit != "ms");
            return Err(meant.map_or_else(unreadable, |unit| unreadable().suggest(format!("{count}/{unit}"))));
        }
    };
    if count == 0 {
        return Err(Unreadable::new("a rate of 0 would refuse every call"));
    }
    Ok(Rate { count, per: Duration::from_secs(per) })
}

/// `409`, `4xx` or `500-503`.
pub fn status(text: &str) -> Result<StatusRange, Unreadable> {
    let unreadable = || Unreadable::new(format!("{text:?} is not an HTTP status; write 409, 4xx or 500-503"));
    let code = |digits: &str| {
        let three_digits = digits.len() == 3 && digits.bytes().all(|b| b.is_ascii_digit());
        three_digits.then(|| digits.parse::<u16>().ok()).flatten().filter(|code| (100..=599).contains(code))
    };
    let range = if let Some(class) = text.strip_suffix("xx").or_else(|| text.strip_suffix("XX")) {
        let from = code(&format!("{class}00")).ok_or_else(unreadable)?;
        StatusRange { from, to: from + 99 }
    } else if let Some((from, to)) = text.split_once('-') {
        StatusRange { from: code(from.trim()).ok_or_else(unreadable)?, to: code(to.trim()).ok_or_else(unreadable)? }
    } else {
        let code = code(text).ok_or_else(unreadable)?;
        StatusRange { from: code, to: code }
    };
    if range.from > range.to {
        return Err(unreadable().suggest(format!("{}-{}", range.to, range.from)));
    }
    Ok(range)
}

/// The number in front and what follows it.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start_matches(' '))
}

fn whole(digits: &str) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    all_digits.then(|| digits.parse().ok()).flatten()
}

fn unit_meant(unit: &str) -> Option<&'static str> {
    Some(match unit.to_lowercase().as_str() {
        "ms" | "msec" | "millis" | "millisecond" | "milliseconds" => "ms",
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hrs" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        _ => return None,
    })
}

/// `1.5` of a unit in whole milliseconds, if it is that many.
fn fraction_ms(number: &str, unit_ms: u64) -> Option<u64> {
    let ms = number.parse::<f64>().ok()? * unit_ms as f64;
    // Both casts are exact far beyond any duration that makes sense.
    (ms.fract() == 0.0 && (1.0..1e15).contains(&ms)).then_some(ms as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let check = |text: &str, ms: u64| assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        check("500ms", 500);
        check("10s", 10_000);
        check("10 s", 10_000);
        check("5m", 300_000);
        check("24h", 86_400_000);
        check("7d", 604_800_000);
        check("0s", 0);
        let refuse = |text: &str, meant: Option<&str>| {
            assert_eq!(duration(text).unwrap_err().suggestion.as_deref(), meant, "{text}");
        };
        refuse("10", Some("10s"));
        refuse("10 sec", Some("10s"));
        refuse("3 Minutes", Some("3m"));
        refuse("1.5s", Some("1500ms"));
        refuse("0.5h", Some("30m"));
        refuse("-1s", None);
        refuse("", None);
        refuse("1h30m", None);
        refuse("9999999999999999999d", None);
        refuse("99999999999999999999999s", None);
        refuse("4000d", None);
        refuse("１s", None);
        for text in ["500ms", "90s", "1500ms", "24h"] {
            assert_eq!(duration(&shown(duration(text).unwrap())), duration(text));
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("64KiB"), Ok(65_536));
        assert_eq!(size("1 MiB"), Ok(1 << 20));
        assert_eq!(size("10B"), Ok(10));
        let refuse = |text: &str, meant: Option<&str>| assert_eq!(size(text).unwrap_err().suggestion.as_deref(), meant, "{text}");
        refuse("64", Some("64B"));
        refuse("64kb", Some("64KiB"));
        refuse("1M", Some("1MiB"));
        refuse("1.5MiB", None);
        refuse("many", None);
        refuse("18446744073709551615GiB", None);
    }

    #[test]
    fn rates() {
        assert_eq!(rate("50/s"), Ok(Rate { count: 50, per: Duration::from_secs(1) }));
        assert_eq!(rate("1000 / h"), Ok(Rate { count: 1000, per: Duration::from_secs(3600) }));
        let refuse = |text: &str, meant: Option<&str>| assert_eq!(rate(text).unwrap_err().suggestion.as_deref(), meant, "{text}");
        refuse("50", Some("50/s"));
        refuse("50/sec", Some("50/s"));
        refuse("50/ms", None);
        refuse("0/s", None);
        refuse("99999999999/s", None);
    }

    #[test]
    fn statuses() {
        assert_eq!(status("2xx"), Ok(StatusRange { from: 200, to: 299 }));
        assert_eq!(status("409"), Ok(StatusRange { from: 409, to: 409 }));
        assert_eq!(status("500-503"), Ok(StatusRange { from: 500, to: 503 }));
        assert_eq!(status("503-500").unwrap_err().suggestion.as_deref(), Some("500-503"));
        for text in ["", "x", "9xx", "0xx", "6xx", "40", "4000", "4x", "éxx", "200-"] {
            assert!(status(text).is_err(), "{text}");
        }
    }
}
