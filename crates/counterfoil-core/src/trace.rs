//! Where a call stands in a distributed trace: W3C Trace Context, level 1.
//!
//! It comes along with a call and is no part of it: it never enters a key, an entry or a receipt. What is not exactly as the
//! recommendation says is refused whole, and the call goes on without a trace. We print version 00.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits.
const TRACEPARENT_BYTES: usize = 55;
/// What the recommendation asks everyone to pass on at least; more is not passed on.
const TRACESTATE_BYTES_MAX: usize = 512;
const TRACESTATE_MEMBERS_MAX: usize = 32;
/// The one flag that version 00 knows.
const SAMPLED: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

/// A place in a trace: which trace, which span of it, and whether anybody keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: TraceId,
    pub span: SpanId,
    pub sampled: bool,
    /// `tracestate` as it came. Others' business, passed on unchanged.
    state: Option<Arc<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TraceparentError {
    #[error("a traceparent is VERSION-TRACE-SPAN-FLAGS: 2, 32, 16 and 2 hex digits; this has another shape")]
    Shape,
    #[error("a traceparent holds hex digits in lower case only")]
    Digit,
    #[error("version ff of a traceparent is forbidden")]
    Version,
    #[error("a trace id of zeros means that there is none")]
    NoTrace,
    #[error("a span id of zeros means that there is none")]
    NoSpan,
}

impl TraceId {
    /// `None` for zeros.
    pub fn new(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }
}

impl SpanId {
    /// `None` for zeros.
    pub fn new(bytes: [u8; 8]) -> Option<Self> {
        (bytes != [0; 8]).then_some(Self(bytes))
    }
}

impl TraceContext {
    /// A trace that begins here, and that somebody keeps.
    pub fn root(trace: TraceId, span: SpanId) -> Self {
        Self { trace, span, sampled: true, state: None }
    }

    /// Reads a `traceparent`. A version after 00 is read as far as version 00 goes, as the recommendation asks.
    pub fn parse(traceparent: &str) -> Result<Self, TraceparentError> {
        let (head, rest) = traceparent.as_bytes().split_at_checked(TRACEPARENT_BYTES).ok_or(TraceparentError::Shape)?;
        if [2, 35, 52].iter().any(|at| head[*at] != b'-') {
            return Err(TraceparentError::Shape);
        }
        let [version] = hex(&head[..2])?;
        if !(rest.is_empty() || version > 0 && rest[0] == b'-') {
            return Err(TraceparentError::Shape);
        }
        if version == 0xff {
            return Err(TraceparentError::Version);
        }
        let [flags] = hex(&head[53..])?;
        Ok(Self {
            trace: TraceId::new(hex(&head[3..35])?).ok_or(TraceparentError::NoTrace)?,
            span: SpanId::new(hex(&head[36..52])?).ok_or(TraceparentError::NoSpan)?,
            sampled: flags & SAMPLED != 0,
            state: None,
        })
    }

    /// With the `tracestate` that came beside it. One that cannot be a tracestate is dropped, the trace stays.
    pub fn with_state(self, tracestate: &str) -> Self {
        let text = tracestate.trim_matches([' ', '\t']);
        let members: Vec<&str> = text.split(',').map(|member| member.trim_matches([' ', '\t'])).filter(|m| !m.is_empty()).collect();
        let printable = text.bytes().all(|b| matches!(b, b' '..=b'~' | b'\t'));
        let formed = members.iter().all(|member| member.find('=').is_some_and(|at| at > 0));
        let bounded = text.len() <= TRACESTATE_BYTES_MAX && (1..=TRACESTATE_MEMBERS_MAX).contains(&members.len());
        let usable = printable && formed && bounded;
        Self { state: usable.then(|| text.into()), ..self }
    }

    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// The same trace, one span further down.
    pub fn child(&self, span: SpanId) -> Self {
        Self { span, ..self.clone() }
    }
}

/// As a `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

fn hex<const N: usize>(digits: &[u8]) -> Result<[u8; N], TraceparentError> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Ok(b - b'0'),
        b'a'..=b'f' => Ok(b - b'a' + 10),
        _ => Err(TraceparentError::Digit),
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn what_is_read_is_printed_again() {
        for flags in ["00", "01"] {
            let text = format!("00-{TRACE}-{SPAN}-{flags}");
            assert_eq!(TraceContext::parse(&text).expect("as W3C has it").to_string(), text);
        }
    }

    #[test]
    fn what_a_traceparent_may_be() {
        use TraceparentError::{Digit, NoSpan, NoTrace, Shape, Version};
        let zeros = "0".repeat(32);
        let check = |text: String, expected: Result<(&str, bool), TraceparentError>| {
            let read = TraceContext::parse(&text).map(|context| (context.to_string(), context.sampled));
            assert_eq!(read, expected.map(|(printed, sampled)| (printed.to_owned(), sampled)), "{text:?}");
        };
        let (sampled, unsampled) = (format!("00-{TRACE}-{SPAN}-01"), format!("00-{TRACE}-{SPAN}-00"));
        check(sampled.clone(), Ok((&sampled, true)));
        // Flags of later levels are not ours to pass on.
        check(format!("00-{TRACE}-{SPAN}-03"), Ok((&sampled, true)));
        check(format!("00-{TRACE}-{SPAN}-fe"), Ok((&unsampled, false)));
        // A later version: as far as 00 goes.
        check(format!("cc-{TRACE}-{SPAN}-01"), Ok((&sampled, true)));
        check(format!("cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like"), Ok((&sampled, true)));
        check(format!("cc-{TRACE}-{SPAN}-01.what-the-future-will-not-be-like"), Err(Shape));
        check(format!("ff-{TRACE}-{SPAN}-01"), Err(Version));
        check(format!("00-{TRACE}-{SPAN}-01-more"), Err(Shape));
        check(format!("00-{TRACE}-{SPAN}-01-"), Err(Shape));
        check(format!("00-{TRACE}-{SPAN}-0"), Err(Shape));
        check(format!("00-{TRACE}-{SPAN}"), Err(Shape));
        check(format!("00_{TRACE}_{SPAN}_01"), Err(Shape));
        check(String::new(), Err(Shape));
        check(format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), Err(Digit));
        check(format!("00-{TRACE}-{}-01", SPAN.to_uppercase()), Err(Digit));
        check(format!("00-{TRACE}-{SPAN}-0G"), Err(Digit));
        check(format!("0X-{TRACE}-{SPAN}-01"), Err(Digit));
        check(format!("00-{zeros}-{SPAN}-01"), Err(NoTrace));
        check(format!("00-{TRACE}-{}-01", &zeros[..16]), Err(NoSpan));
        check(format!(" 00-{TRACE}-{SPAN}-01"), Err(Shape));
        check(format!("00-{}é-{SPAN}-01", &TRACE[..30]), Err(Digit));
    }

    #[test]
    fn a_child_is_of_the_same_trace_with_the_same_state() {
        let parent = TraceContext::parse(&format!("00-{TRACE}-{SPAN}-01")).expect("as W3C has it").with_state("a=1, b@c=2");
        let child = parent.child(SpanId::new([1; 8]).expect("not zeros"));
        assert_eq!(child.to_string(), format!("00-{TRACE}-0101010101010101-01"));
        assert_eq!(child.state(), Some("a=1, b@c=2"));
    }

    #[test]
    fn a_state_that_cannot_be_one_is_dropped() {
        let context = TraceContext::parse(&format!("00-{TRACE}-{SPAN}-01")).expect("as W3C has it");
        let many = |n: usize| (0..n).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(",");
        for kept in ["a=1", "a=1,,b=2", "a=", &many(32), &format!("a={}", "x".repeat(510))] {
            assert_eq!(context.clone().with_state(kept).state(), Some(kept));
        }
        for dropped in ["", " , ", "a", "=1", "a=1,b", "a=é", "a=\n", &many(33), &format!("a={}", "x".repeat(511))] {
            assert_eq!(context.clone().with_state(dropped).state(), None, "{dropped:?}");
        }
    }

    #[test]
    fn zeros_are_no_id() {
        assert_eq!((TraceId::new([0; 16]), SpanId::new([0; 8])), (None, None));
    }
}
