//! Identities. Every id that crosses the border is checked here once and is a type inside.
//!
//! Names (tenant, caller, run, step, tool, worker) are short printable strings; keys and streams are
//! 32 bytes. No clock and no attempt number ever enters a key.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::redact::Salt;

/// Longest name, in bytes. The same as the longest `Idempotency-Key`, so that a key fits wherever a name does.
pub const NAME_BYTES_MAX: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    #[error("{what} is empty")]
    Empty { what: &'static str },
    #[error("{what} is {len} bytes long; at most {NAME_BYTES_MAX} are allowed")]
    TooLong { what: &'static str, len: usize },
    #[error("{what} {shown:?} contains {found:?} at byte {at}; {allowed}")]
    BadCharacter { what: &'static str, shown: String, found: char, at: usize, allowed: &'static str },
}

/// What a [`Name`] names, and which characters it may hold.
pub trait Kind {
    const WHAT: &'static str;
    const ALLOWED: &'static str = "printable ASCII only";
    fn allows(c: char) -> bool {
        matches!(c, ' '..='~')
    }
}

/// A short, checked, cheaply cloned string of one kind.
pub struct Name<K> {
    text: Arc<str>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Name<K> {
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty { what: K::WHAT });
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong { what: K::WHAT, len: text.len() });
        }
        if let Some((at, found)) = text.char_indices().find(|&(_, c)| !K::allows(c)) {
            let shown = text.chars().take(40).collect();
            return Err(NameError::BadCharacter { what: K::WHAT, shown, found, at, allowed: K::ALLOWED });
        }
        Ok(Self { text: text.into(), kind: PhantomData })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// A copy that shares nothing with this one: for what many threads clone and drop again and again, which would all count on one line of memory.
    pub fn apart(&self) -> Self {
        Self { text: self.as_str().into(), kind: PhantomData }
    }
}

impl<K> Clone for Name<K> {
    fn clone(&self) -> Self {
        Self { text: self.text.clone(), kind: PhantomData }
    }
}
impl<K> PartialEq for Name<K> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}
impl<K> Eq for Name<K> {}
impl<K> PartialOrd for Name<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<K> Ord for Name<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}
impl<K> std::hash::Hash for Name<K> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}
impl<K> fmt::Debug for Name<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.text)
    }
}
impl<K> fmt::Display for Name<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}
impl<K: Kind> FromStr for Name<K> {
    type Err = NameError;
    fn from_str(s: &str) -> Result<Self, NameError> {
        Self::new(s)
    }
}
impl<K> Serialize for Name<K> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.text)
    }
}
impl<'de, K: Kind> Deserialize<'de> for Name<K> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_str(Parsed::new(K::WHAT))
    }
}

#[derive(Debug)]
pub enum TenantKind {}
impl Kind for TenantKind {
    const WHAT: &'static str = "tenant";
}
#[derive(Debug)]
pub enum CallerKind {}
impl Kind for CallerKind {
    const WHAT: &'static str = "caller";
}
#[derive(Debug)]
pub enum RunKind {}
impl Kind for RunKind {
    const WHAT: &'static str = "run id";
}
#[derive(Debug)]
pub enum StepKind {}
impl Kind for StepKind {
    const WHAT: &'static str = "step";
}
#[derive(Debug)]
pub enum KeyKind {}
impl Kind for KeyKind {
    const WHAT: &'static str = "key";
}
#[derive(Debug)]
pub enum WorkerKind {}
impl Kind for WorkerKind {
    const WHAT: &'static str = "worker id";
}
#[derive(Debug)]
pub enum ToolKind {}
impl Kind for ToolKind {
    const WHAT: &'static str = "tool name";
    const ALLOWED: &'static str = "letters, digits, '_', '-', '.' and '/' only";
    fn allows(c: char) -> bool {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/')
    }
}

#[derive(Debug)]
pub enum WorkflowKind {}
impl Kind for WorkflowKind {
    const WHAT: &'static str = "workflow name";
    const ALLOWED: &'static str = ToolKind::ALLOWED;
    fn allows(c: char) -> bool {
        ToolKind::allows(c)
    }
}

#[derive(Debug)]
pub enum ScheduleKind {}
impl Kind for ScheduleKind {
    const WHAT: &'static str = "schedule name";
    const ALLOWED: &'static str = ToolKind::ALLOWED;
    fn allows(c: char) -> bool {
        ToolKind::allows(c)
    }
}

/// Whose ledger it is. Part of every key: tenants never see each other's effects.
pub type Tenant = Name<TenantKind>;
/// Who asked.
pub type Caller = Name<CallerKind>;
/// One execution of a workflow, an agent's turn, or a client-driven session.
pub type RunId = Name<RunKind>;
/// Where in the run the call stands.
pub type StepPath = Name<StepKind>;
/// A key the caller chose. Scoped to (tenant, tool).
pub type CallKey = Name<KeyKind>;
/// One process that may hold permits.
pub type WorkerId = Name<WorkerKind>;
pub type ToolName = Name<ToolKind>;
pub type WorkflowName = Name<WorkflowKind>;
pub type ScheduleName = Name<ScheduleKind>;

/// 32 bytes shown as 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest32(pub [u8; 32]);

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{shown:?} is not 64 hexadecimal digits")]
pub struct NotHex {
    shown: String,
}

impl Digest32 {
    /// SHA-256 of plain bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// SHA-256 of a version tag and length-prefixed fields, so that no two field lists collide.
    pub fn of_fields(tag: &str, fields: &[&[u8]]) -> Self {
        let mut h = Sha256::new();
        for field in std::iter::once(&tag.as_bytes()).chain(fields) {
            h.update((field.len() as u64).to_be_bytes());
            h.update(field);
        }
        Self(h.finalize().into())
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Its 64 digits, behind what is there.
    pub fn append_to(&self, out: &mut String) {
        out.push_str(hex(&self.0, &mut [0; 64]));
    }
}
impl fmt::Display for Digest32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = [0u8; 64];
        f.pad(hex(&self.0, &mut out))
    }
}
impl fmt::Debug for Digest32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl FromStr for Digest32 {
    type Err = NotHex;
    fn from_str(s: &str) -> Result<Self, NotHex> {
        let not_hex = || NotHex { shown: s.chars().take(80).collect() };
        let text = s.as_bytes();
        if text.len() != 64 {
            return Err(not_hex());
        }
        let mut out = [0u8; 32];
        for (byte, [high, low]) in out.iter_mut().zip(text.as_chunks::<2>().0) {
            let (high, low) = (UNHEX[usize::from(*high)], UNHEX[usize::from(*low)]);
            if (high | low) > 15 {
                return Err(not_hex());
            }
            *byte = high << 4 | low;
        }
        Ok(Self(out))
    }
}
impl Serialize for Digest32 {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(hex(&self.0, &mut [0u8; 64]))
    }
}
impl<'de> Deserialize<'de> for Digest32 {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_str(Parsed::new("64 hex digits"))
    }
}

/// Parses a string where it stands.
struct Parsed<T> {
    expected: &'static str,
    into: PhantomData<fn() -> T>,
}

impl<T> Parsed<T> {
    fn new(expected: &'static str) -> Self {
        Self { expected, into: PhantomData }
    }
}

impl<T: FromStr<Err: fmt::Display>> serde::de::Visitor<'_> for Parsed<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// Every byte as its two digits.
const HEX: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut table = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    table
};

/// The value of every digit; above 15 for what is none.
const UNHEX: [u8; 256] = {
    let mut table = [0xff; 256];
    let mut value = 0;
    while value < 16 {
        let digit = HEX[value as usize][1];
        table[digit as usize] = value;
        table[digit.to_ascii_uppercase() as usize] = value;
        value += 1;
    }
    table
};

fn hex<'a>(bytes: &[u8; 32], out: &'a mut [u8; 64]) -> &'a str {
    for (pair, byte) in out.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = HEX[usize::from(*byte)];
    }
    std::str::from_utf8(out).expect("hex digits are ASCII")
}

/// Identity of a call.
pub type EffectKey = Digest32;
/// Digest of a call's canonical arguments: tells key reuse with other arguments from a repeat.
pub type Fingerprint = Digest32;

/// Which of a tenant's chains for calls outside runs. A process that is alone uses the first, or the first few where it has several batches on their way at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lane(pub u16);

impl Lane {
    pub const FIRST: Self = Self(0);
    /// So many there are at most: whoever verifies looks at each.
    pub const COUNT: u16 = 64;

    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }

    /// Another lane than this one. `chance` is any number; workers that got different ones hardly meet again.
    pub fn another(self, chance: u64) -> Self {
        let step = 1 + (chance % u64::from(Self::COUNT - 1)) as u16;
        Self((self.0 + step) % Self::COUNT)
    }

    pub fn is_first(&self) -> bool {
        *self == Self::FIRST
    }
}

/// One sequence of records in a store. Effects use their key; everything else a digest with its own tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub [u8; 32]);

impl StreamId {
    pub fn effect(key: &EffectKey) -> Self {
        Self(key.0)
    }
    /// Receipts of one run, or of a tenant's calls outside runs.
    pub fn chain(tenant: &Tenant, run: Option<&RunId>) -> Self {
        match run {
            Some(run) => Self::tagged("counterfoil/chain/run/1", &[tenant.as_str(), run.as_str()]),
            None => Self::tagged("counterfoil/chain/tenant/1", &[tenant.as_str()]),
        }
    }
    /// A tenant's calls outside runs, where several write receipts at once: each has a lane of its own. Lane 0 is `chain`.
    pub fn lane(tenant: &Tenant, lane: Lane) -> Self {
        match lane {
            Lane::FIRST => Self::chain(tenant, None),
            Lane(number) => Self::tagged("counterfoil/chain/lane/1", &[tenant.as_str(), &number.to_string()]),
        }
    }
    pub fn breaker(tenant: &Tenant, tool: &ToolName) -> Self {
        Self::tagged("counterfoil/breaker/1", &[tenant.as_str(), tool.as_str()])
    }
    /// What all workers have taken of a tool's limits, from 1 counted on: one follows another, so that none grows long and what is over can go.
    pub fn quota(tenant: &Tenant, tool: &ToolName, generation: u64) -> Self {
        Self::tagged("counterfoil/quota/1", &[tenant.as_str(), tool.as_str(), &generation.to_string()])
    }
    /// What one run has spent on one tool.
    pub fn budget(tenant: &Tenant, run: &RunId, tool: &ToolName) -> Self {
        Self::tagged("counterfoil/budget/1", &[tenant.as_str(), run.as_str(), tool.as_str()])
    }
    /// One mutating HTTP request: a key means something to one tenant, one method and one route.
    pub fn request(tenant: &Tenant, method: &str, route: &str, key: &CallKey) -> Self {
        Self::tagged("counterfoil/request/1", &[tenant.as_str(), method, route, key.as_str()])
    }
    /// A tool that a tenant registered.
    pub fn tool(tenant: &Tenant, tool: &ToolName) -> Self {
        Self::tagged("counterfoil/tool/1", &[tenant.as_str(), tool.as_str()])
    }
    /// A bearer token, by the digest of its secret.
    pub fn token(secret: &Digest32) -> Self {
        Self(Digest32::of_fields("counterfoil/token/1", &[&secret.0]).0)
    }
    /// The mode of one tool, or of all.
    pub fn mode(tool: Option<&ToolName>) -> Self {
        match tool {
            Some(tool) => Self::tagged("counterfoil/mode/tool/1", &[tool.as_str()]),
            None => Self::tagged("counterfoil/mode/1", &[]),
        }
    }
    pub fn run(tenant: &Tenant, run: &RunId) -> Self {
        Self::tagged("counterfoil/run/1", &[tenant.as_str(), run.as_str()])
    }
    /// A workflow's text, which never changes.
    pub fn definition(tenant: &Tenant, digest: &Digest32) -> Self {
        Self::tagged("counterfoil/definition/1", &[tenant.as_str(), &digest.to_string()])
    }
    /// Which text a tenant's workflow has now.
    pub fn workflow(tenant: &Tenant, name: &WorkflowName) -> Self {
        Self::tagged("counterfoil/workflow/1", &[tenant.as_str(), name.as_str()])
    }
    /// When a tenant's workflow runs again and again.
    pub fn schedule(tenant: &Tenant, name: &ScheduleName) -> Self {
        Self::tagged("counterfoil/schedule/1", &[tenant.as_str(), name.as_str()])
    }
    /// 256 hashes of the log of receipts: of leaves, or of what is above them.
    pub fn tile(level: u32, index: u64) -> Self {
        Self::tagged("counterfoil/tile/1", &[&level.to_string(), &index.to_string()])
    }
    /// Signed heads of the log, 256 to a stream: so that each is found at once, and the newest soon.
    pub fn heads(segment: u64) -> Self {
        Self::tagged("counterfoil/heads/1", &[&segment.to_string()])
    }
    /// The public keys that heads were signed with, in their order.
    pub fn keys() -> Self {
        Self::tagged("counterfoil/keys/1", &[])
    }
    /// What is left of a run that was moved to an archive.
    pub fn archived(tenant: &Tenant, run: &RunId) -> Self {
        Self::tagged("counterfoil/archived/1", &[tenant.as_str(), run.as_str()])
    }
    /// The key of a person, or of whoever else data is about. Does not tell whose: the ledger's salt is in it.
    pub fn subject(salt: &Salt, tenant: &Tenant, subject: &str) -> Self {
        Self(Digest32::of_fields("counterfoil/subject/1", &[&salt.0, tenant.as_str().as_bytes(), subject.as_bytes()]).0)
    }
    /// That a subject's key was destroyed, by whom and why.
    pub fn erased(tenant: &Tenant, subject: &StreamId) -> Self {
        Self(Digest32::of_fields("counterfoil/erased/1", &[tenant.as_str().as_bytes(), &subject.0]).0)
    }
    /// The secret that salts the digests of redacted values.
    pub fn salt() -> Self {
        Self::tagged("counterfoil/salt/1", &[])
    }
    /// Written only to see whether the ledger can be written.
    pub fn pulse() -> Self {
        Self::tagged("counterfoil/pulse/1", &[])
    }
    fn tagged(tag: &str, fields: &[&str]) -> Self {
        let fields: Vec<&[u8]> = fields.iter().map(|f| f.as_bytes()).collect();
        Self(Digest32::of_fields(tag, &fields).0)
    }
}
impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Digest32(self.0), f)
    }
}

/// Grows with every claim of one effect; a report that carries an older one is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_their_texts_and_digests_are_their_bytes() {
        let names = ["a", "b", "ab"].map(|text| Tenant::new(text).unwrap());
        assert!(names[0] < names[1] && names[2] < names[1] && names[0] < names[2]);
        assert_eq!(Digest32([7; 32]).as_bytes(), &[7; 32]);
        assert_eq!(StreamId([7; 32]).to_string(), "07".repeat(32));
        assert_eq!((format!("{:?}", Digest32([7; 32])), format!("{:?}", names[2])), ("07".repeat(32), r#""ab""#.into()));
    }

    #[test]
    fn names_say_what_is_wrong() {
        let check = |text: &str, expected: &str| {
            assert_eq!(CallKey::new(text).unwrap_err().to_string(), expected);
        };
        check("", "key is empty");
        check(&"k".repeat(300), "key is 300 bytes long; at most 255 are allowed");
        check("a\nb", r#"key "a\nb" contains '\n' at byte 1; printable ASCII only"#);
        check("naïve", r#"key "naïve" contains 'ï' at byte 2; printable ASCII only"#);
        assert!(ToolName::new("bank.charge-card_2").is_ok());
        assert!(ToolName::new("charge card").is_err());
        let wrong = serde_json::from_str::<ToolName>("7").unwrap_err().to_string();
        assert!(wrong.contains("expected tool name"), "{wrong}");
    }

    #[test]
    fn no_kind_of_name_holds_a_line_break_or_is_empty() {
        fn refused<K: Kind>() {
            assert!(Name::<K>::new("a\nb").is_err() && Name::<K>::new("").is_err() && Name::<K>::new("a").is_ok(), "{}", K::WHAT);
        }
        refused::<TenantKind>();
        refused::<CallerKind>();
        refused::<RunKind>();
        refused::<StepKind>();
        refused::<KeyKind>();
        refused::<WorkerKind>();
        refused::<ToolKind>();
        refused::<WorkflowKind>();
        refused::<ScheduleKind>();
    }

    #[test]
    fn another_lane_is_any_but_this_one() {
        assert_eq!(Lane::all().map(|lane| lane.0).collect::<Vec<_>>(), (0..64).collect::<Vec<_>>());
        for lane in Lane::all() {
            let others: std::collections::BTreeSet<Lane> = (0..1000).map(|chance| lane.another(chance)).collect();
            assert_eq!(others, Lane::all().filter(|other| *other != lane).collect(), "each of them, and none else");
        }
    }

    #[test]
    fn digests_round_trip_through_hex() {
        let d = Digest32::of(b"x");
        assert_eq!(d.to_string().parse::<Digest32>().unwrap(), d);
        assert_eq!(d.to_string().len(), 64);
        assert!("abc".parse::<Digest32>().is_err());
        assert!("g".repeat(64).parse::<Digest32>().is_err());
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        assert_ne!(Digest32::of_fields("t", &[b"ab", b"c"]), Digest32::of_fields("t", &[b"a", b"bc"]));
        assert_ne!(Digest32::of_fields("t", &[b""]), Digest32::of_fields("t", &[]));
    }
}
