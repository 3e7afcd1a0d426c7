//! A request as a handler gets it: who asks, under which key, with what body. Whatever is malformed is refused here, before anything is looked at.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use counterfoil_core::canonical::{ARGS_BYTES_MAX, CanonicalError, CanonicalJson};
use counterfoil_core::ids::{CallKey, Kind, Name};
use counterfoil_core::{EffectKey, ToolName};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::app::{App, within};
use crate::problem::Problem;
use crate::requests::Asked;
use crate::who::Who;

pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Largest body. Arguments and results have the same bound inside it.
pub const BODY_BYTES_MAX: usize = ARGS_BYTES_MAX;

/// How much of a body that is too large is read to its end, so that its client hears why it is refused.
const DRAINED_BYTES_MAX: usize = 32 << 20;
const DRAINED_WITHIN: std::time::Duration = std::time::Duration::from_secs(5);

/// What is known of a request when it comes to its handler.
#[derive(Debug, Clone)]
pub struct Came {
    /// `None` where no token is needed.
    pub who: Option<Who>,
    pub route: &'static str,
    /// The first part of the path that varies, decoded. `None`: there is none, or it is not UTF-8 text.
    pub segment: Option<String>,
    /// The second, likewise.
    pub second: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Ask {
    pub who: Who,
    pub key: Option<CallKey>,
    pub headers: HeaderMap,
    method: Method,
    route: &'static str,
    uri: Uri,
    body: String,
}

impl FromRequest<Arc<App>> for Ask {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let Came { who, route, .. } = parts.extensions.remove().ok_or_else(unauthorized)?;
        let who = who.ok_or_else(unauthorized)?;
        let key = idempotency_key(&parts.headers)?;
        if let Err(problem) = check_length(&parts.headers) {
            // A client that is still sending would be cut off before it could read the answer.
            drop(tokio::time::timeout(DRAINED_WITHIN, drain(body)).await);
            return Err(problem);
        }
        let reading = Limited::new(body, BODY_BYTES_MAX).collect();
        let bytes = match within(app.limits.body_within, reading).await {
            None => {
                let detail = format!("the body did not arrive within {:?}; nothing was run", app.limits.body_within);
                return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", detail));
            }
            Some(Err(error)) if error.is::<http_body_util::LengthLimitError>() => return Err(too_large()),
            Some(Err(error)) => return Err(Problem::bad("invalid_body", format!("the body cannot be read: {error}; nothing was run"))),
            Some(Ok(body)) => body.to_bytes(),
        };
        let body = String::from_utf8(bytes.into()).map_err(|error| {
            Problem::bad("invalid_body", format!("the body is not UTF-8 text at byte {}", error.utf8_error().valid_up_to()))
        })?;
        if !body.is_empty() {
            check_type(&parts.headers)?;
        }
        Ok(Self { who, key, headers: parts.headers, method: parts.method, route, uri: parts.uri, body })
    }
}

/// Reads and forgets.
async fn drain(mut body: axum::body::Body) {
    let mut left = DRAINED_BYTES_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        left = left.saturating_sub(frame.data_ref().map_or(0, bytes::Bytes::len));
        if left == 0 {
            return;
        }
    }
}

impl Ask {
    /// The body as JSON, with a fixed set of members. An empty body is an empty object.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let text = if self.body.trim_ascii().is_empty() { "{}" } else { &self.body };
        // Duplicate members and too deep nesting are refused wherever they stand, also in what is taken as it is.
        CanonicalJson::parse(text).map_err(|error| invalid_json(&error))?;
        parse(text)
    }

    pub fn query<Q: DeserializeOwned>(&self) -> Result<Q, Problem> {
        Query::<Q>::try_from_uri(&self.uri).map(|Query(query)| query).map_err(|error| Problem::bad("invalid_query", error.body_text()))
    }

    /// The body as it was sent.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// What the key knows of this request; `None` without a key.
    pub fn asked(&self) -> Option<Asked> {
        let key = self.key.as_ref()?;
        // As they were sent.
        let path_and_query = self.uri.path_and_query().map_or("", |target| target.as_str());
        Some(Asked::new(&self.who.tenant, &self.method, self.route, key, path_and_query, &self.body))
    }

    pub fn required_key(&self) -> Result<&CallKey, Problem> {
        self.key.as_ref().ok_or_else(key_required)
    }
}

pub fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Problem> {
    let Object(body) = serde_json::from_str(text)
        .map_err(|error| Problem::bad("invalid_body", format!("the body does not fit: {error}; nothing was run")))?;
    Ok(body)
}

/// A JSON object with the members of `T`. Without it an array would do as well, its elements taken for the members in their order.
#[derive(Debug, Default)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = T;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members))
            }
        }
        deserializer.deserialize_map(Members(PhantomData)).map(Self)
    }
}

/// A whole number, also when it is written 21.0: to JSON that is the same number.
pub fn whole<'de, D: serde::Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    let number = <serde_json::Number as serde::Deserialize>::deserialize(d)?;
    let float = number.as_f64().filter(|f| f.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(f));
    number.as_u64().or(float.map(|f| f as u64)).ok_or_else(|| serde::de::Error::custom(format!("{number} is not a whole number from 0")))
}

pub fn whole_or_null<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    #[derive(serde::Deserialize)]
    struct Whole(#[serde(deserialize_with = "whole")] u64);
    Ok(<Option<Whole> as serde::Deserialize>::deserialize(d)?.map(|Whole(number)| number))
}

pub fn key_required() -> Problem {
    let detail = "this request needs an Idempotency-Key header (1 to 255 printable ASCII characters), so that it can be sent again safely; nothing was run";
    Problem::bad("idempotency_key_required", detail)
}

pub fn invalid_json(error: &CanonicalError) -> Problem {
    match error {
        CanonicalError::TooLarge { .. } => too_large(),
        _ => Problem::bad("invalid_json", format!("{error}; nothing was run")),
    }
}

fn too_large() -> Problem {
    let detail = format!("the body is larger than {BODY_BYTES_MAX} bytes: pass a reference instead of the thing itself; nothing was run");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
}

fn check_length(headers: &HeaderMap) -> Result<(), Problem> {
    let declared = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > BODY_BYTES_MAX as u64) { Err(too_large()) } else { Ok(()) }
}

fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let refused = |found: &str| {
        let detail = format!("the body must be application/json, not {found:?}; nothing was run");
        Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail))
    };
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    match (types.next(), types.next()) {
        (None, _) => refused(""),
        (Some(_), Some(_)) => refused("two types"),
        (Some(one), None) => {
            let text = one.to_str().unwrap_or("?");
            let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            if essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json")) {
                Ok(())
            } else {
                refused(text)
            }
        }
    }
}

/// Bare, or a quoted string of a structured field. What is malformed is refused: an unprotected request would be worse.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<CallKey>, Problem> {
    let mut values = headers.get_all(&IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let bad = |why: String| Problem::bad("invalid_idempotency_key", format!("Idempotency-Key: {why}; nothing was run"));
    if values.next().is_some() {
        return Err(bad("sent more than once".into()));
    }
    let text = value.to_str().map_err(|_| bad("printable ASCII only".into()))?.trim();
    let text = if text.starts_with('"') {
        Cow::Owned(unquoted(text).ok_or_else(|| bad(format!("{text:?} is not a quoted string")))?)
    } else {
        Cow::Borrowed(text)
    };
    CallKey::new(&text).map(Some).map_err(|error| bad(error.to_string()))
}

fn unquoted(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"').filter(|_| text.len() >= 2)?;
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next().filter(|c| matches!(c, '"' | '\\'))?),
            '"' => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

fn unauthorized() -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "no token was given")
}

/// The first part of a path that varies, decoded.
pub struct Segment(pub String);

/// The second.
pub struct Second(pub String);

impl FromRequestParts<Arc<App>> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        let segment = parts.extensions.get_mut::<Came>().and_then(|came| came.segment.take());
        segment.map(Self).ok_or_else(invalid_path)
    }
}

impl FromRequestParts<Arc<App>> for Second {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        let second = parts.extensions.get_mut::<Came>().and_then(|came| came.second.take());
        second.map(Self).ok_or_else(invalid_path)
    }
}

fn invalid_path() -> Problem {
    Problem::bad("invalid_path", "the path cannot be read: it is not UTF-8 text when decoded")
}

impl Segment {
    pub fn effect(&self) -> Result<EffectKey, Problem> {
        self.0.parse().map_err(|error| Problem::bad("invalid_key", format!("{error}: an effect is named by its key")))
    }

    pub fn tool(&self) -> Result<ToolName, Problem> {
        self.name()
    }

    /// A tool, a workflow or a run.
    pub fn name<K: Kind>(&self) -> Result<Name<K>, Problem> {
        Name::new(&self.0).map_err(|error| Problem::bad("invalid_name", error.to_string()))
    }
}

/// A look: who asks, and the query.
pub struct Look<Q> {
    pub who: Who,
    pub query: Q,
    pub headers: HeaderMap,
}

impl<Q: DeserializeOwned> FromRequestParts<Arc<App>> for Look<Q> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        let who = parts.extensions.get::<Came>().and_then(|came| came.who.clone()).ok_or_else(unauthorized)?;
        let Query(query) = Query::<Q>::try_from_uri(&parts.uri).map_err(|error| Problem::bad("invalid_query", error.body_text()))?;
        Ok(Self { who, query, headers: parts.headers.clone() })
    }
}

/// A query with nothing in it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoQuery {}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(values: &[&[u8]]) -> Result<Option<String>, &'static str> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IDEMPOTENCY_KEY, http::HeaderValue::from_bytes(value).unwrap());
        }
        idempotency_key(&headers).map(|key| key.map(|key| key.to_string())).map_err(|problem| problem.code)
    }

    #[test]
    fn a_body_is_an_object_and_no_list_of_its_members() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Body<'a> {
            fence: u64,
            #[serde(borrow)]
            result: Option<&'a serde_json::value::RawValue>,
        }
        let parsed =
            |text| parse::<Body<'_>>(text).map(|body| (body.fence, body.result.map(|raw| raw.get()))).map_err(|problem| problem.code);
        assert_eq!(parsed(r#"{"fence":1,"result":{"b": 2}}"#), Ok((1, Some(r#"{"b": 2}"#))));
        for bad in ["[1,null]", "[]", "1", "null", r#"{"fence":1,"more":2}"#, r#"{"fence":[1]}"#] {
            assert_eq!(parsed(bad), Err("invalid_body"), "{bad}");
        }
    }

    #[test]
    fn a_key_is_bare_or_quoted_and_never_guessed() {
        let ok = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(key(&[]), Ok(None));
        assert_eq!(key(&[b"order-7"]), ok("order-7"));
        assert_eq!(key(&[br#""order-7""#]), ok("order-7"));
        assert_eq!(key(&[br#""a \"b\" \\""#]), ok(r#"a "b" \"#));
        assert_eq!(key(&[&[b'k'; 255]]), ok(&"k".repeat(255)));
        for bad in [&b""[..], b"\"\"", b"\"open", b"\"a\"b\"", br#""a\b""#, "schlüssel".as_bytes(), &[b'k'; 256], b"a\tb", b"\""] {
            assert_eq!(key(&[bad]), Err("invalid_idempotency_key"), "{bad:?}");
        }
        assert_eq!(key(&[b"a", b"a"]), Err("invalid_idempotency_key"));
    }
}
