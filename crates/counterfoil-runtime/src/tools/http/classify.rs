//! What an answer, or the lack of one, says about the world.
//!
//! Must stay true: an error before the connection stood is the only one that proves nothing was sent. Every later one leaves
//! the request possibly delivered. An error status is never a success.

use std::error::Error;
use std::time::{Duration, SystemTime};

use counterfoil_core::Failure;
use http::Method;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

use super::egress::{self, NotPublic};
use crate::spec::{ServerError, StatusClasses, StatusRange};
use crate::tools::Broken;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Success,
    /// Not done; trying again may help.
    Retriable,
    /// Not done, for good.
    Rejection,
    Unknown,
}

impl StatusClasses {
    /// The explicit lists first, then the defaults.
    pub(super) fn class(&self, status: u16, method: &Method) -> Class {
        let asks = method == Method::GET || method == Method::HEAD;
        self.explicit(status).unwrap_or(match status {
            200..=299 => Class::Success,
            // The request itself is wanted elsewhere, or not at all.
            304 | 307 | 308 => Class::Rejection,
            // Whoever carries out a form often answers with the way to what came of it (Post/Redirect/Get): it was done.
            300..=399 if !asks => Class::Unknown,
            // 502 and 504 are not here: a gateway also says so when the server behind it acted and its answer was lost.
            408 | 425 | 429 | 503 => Class::Retriable,
            500.. if self.server_error == ServerError::NotDone => Class::Retriable,
            // Also for tools that may be repeated: the runtime repeats those, and when it gives up the outcome is still unknown.
            500.. => Class::Unknown,
            _ => Class::Rejection,
        })
    }

    pub(super) fn explicit(&self, status: u16) -> Option<Class> {
        let holds = |ranges: &[StatusRange]| ranges.iter().any(|range| (range.from..=range.to).contains(&status));
        [
            (&self.success, Class::Success),
            (&self.retriable, Class::Retriable),
            (&self.rejection, Class::Rejection),
            (&self.unknown, Class::Unknown),
        ]
        .into_iter()
        .find_map(|(ranges, class)| holds(ranges).then_some(class))
    }
}

/// The failure a status stands for.
pub(super) fn status_failure(class: Class, status: u16, headers: &HeaderMap, method: &Method) -> Failure {
    let message = match (class, status) {
        (Class::Unknown, 300..=399) => format!(
            "answered {status} to a {method}, as many servers do when it was done; it was not followed. What {status} means here, say with `success` or `rejection`"
        ),
        (_, 300..=399) => format!("answered {status} to a {method}: it was not followed, and nothing was sent anywhere else"),
        (Class::Unknown, _) => format!("answered {status}: it may have happened before the server failed"),
        _ => format!("answered {status}"),
    };
    let code = format!("http_{status}");
    match class {
        Class::Retriable | Class::Unknown => Failure {
            // Too many requests, too early: the dependency works, and says so.
            dependency: status >= 500,
            ..Failure::of_dependency(code, message).retry_after(retry_after(headers))
        },
        Class::Success | Class::Rejection => Failure::new(code, message),
    }
}

/// What the server asked for, in seconds or as a date. A date is measured by the server's own clock where it tells it.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    let now = headers.get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok()).unwrap_or_else(SystemTime::now);
    Some(until.duration_since(now).unwrap_or_default())
}

impl From<reqwest::Error> for Broken {
    fn from(error: reqwest::Error) -> Self {
        let peer = error.url().map_or_else(
            || "the server".to_owned(),
            |url| format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default()),
        );
        // Without the URL: its query may hold a secret.
        let error = error.without_url();
        if let Some(refused) = source::<NotPublic>(&error) {
            return Self::Before(egress::refused(refused.to_string()));
        }
        if error.is_builder() {
            return Self::Before(Failure::new("request_invalid", format!("the request could not be built: {}", cause(&error))));
        }
        if error.is_connect() {
            let message = format!("could not connect to {peer}: {}; nothing was sent", cause(&error));
            return Self::Before(Failure::of_dependency(connect_code(&error), message));
        }
        let message = format!("the connection to {peer} broke after the request may have left: {}", cause(&error));
        Self::After(Failure::of_dependency("connection_lost", message))
    }
}

fn connect_code(error: &reqwest::Error) -> &'static str {
    let io = source::<std::io::Error>(error).map(std::io::Error::kind);
    match io {
        _ if error.is_dns() => "dns_failed",
        _ if error.is_timeout() => "connect_timeout",
        _ if source::<rustls::Error>(error).is_some() => "tls_failed",
        Some(std::io::ErrorKind::ConnectionRefused) => "connection_refused",
        _ => "connection_failed",
    }
}

fn source<E: Error + 'static>(error: &reqwest::Error) -> Option<&E> {
    chain(error).find_map(|e| e.downcast_ref::<E>())
}

/// The innermost error: the outer ones only say "error sending request".
fn cause(error: &reqwest::Error) -> String {
    chain(error).last().map_or_else(|| error.to_string(), ToString::to_string)
}

/// What is inside the error, from the outside in. An `io::Error` leaves what it wraps out of its sources.
fn chain(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&e| match e.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        Some(inner) => Some(inner as &(dyn Error + 'static)),
        None => e.source(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_their_class() {
        let plain = StatusClasses::default();
        for (status, class) in [
            (200, Class::Success),
            (204, Class::Success),
            (300, Class::Unknown),
            (301, Class::Unknown),
            (302, Class::Unknown),
            (303, Class::Unknown),
            (304, Class::Rejection),
            (305, Class::Unknown),
            (307, Class::Rejection),
            (308, Class::Rejection),
            (400, Class::Rejection),
            (404, Class::Rejection),
            (408, Class::Retriable),
            (409, Class::Rejection),
            (425, Class::Retriable),
            (429, Class::Retriable),
            (500, Class::Unknown),
            (501, Class::Unknown),
            (502, Class::Unknown),
            (503, Class::Retriable),
            (504, Class::Unknown),
            (599, Class::Unknown),
        ] {
            assert_eq!(plain.class(status, &Method::POST), class, "{status}");
        }
        for status in [300, 301, 302, 303, 304, 305, 307, 308] {
            assert_eq!(plain.class(status, &Method::GET), Class::Rejection, "{status}: whoever only asks changes nothing");
            assert_eq!(plain.class(status, &Method::HEAD), Class::Rejection, "{status}");
        }
        let promised = StatusClasses { server_error: ServerError::NotDone, ..Default::default() };
        assert_eq!(promised.class(500, &Method::POST), Class::Retriable);
        let own = StatusClasses {
            success: vec![StatusRange { from: 409, to: 409 }, StatusRange { from: 303, to: 303 }],
            rejection: vec![StatusRange { from: 302, to: 302 }, StatusRange { from: 500, to: 599 }],
            unknown: vec![StatusRange { from: 502, to: 504 }, StatusRange { from: 409, to: 410 }],
            ..Default::default()
        };
        for (status, class) in [
            (302, Class::Rejection),
            (303, Class::Success),
            (409, Class::Success),
            (410, Class::Unknown),
            (500, Class::Rejection),
            (503, Class::Rejection),
        ] {
            assert_eq!(own.class(status, &Method::POST), class, "{status}");
        }
    }

    #[test]
    fn retry_after_is_read_in_both_forms() {
        let check = |value: &str, expected: Option<u64>| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().unwrap());
            headers.insert(DATE, "Wed, 21 Oct 2015 07:28:00 GMT".parse().unwrap());
            assert_eq!(retry_after(&headers).map(|wait| wait.as_secs()), expected, "{value}");
        };
        check("120", Some(120));
        check("Wed, 21 Oct 2015 07:29:30 GMT", Some(90));
        check("Wed, 21 Oct 2015 07:00:00 GMT", Some(0));
        check("soon", None);
        check("-1", None);
    }
}
