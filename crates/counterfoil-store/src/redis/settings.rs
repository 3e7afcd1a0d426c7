//! Whether this Redis can hold a ledger: what it says of its persistence, its memory, its role; and what is at risk as it is set.

use redis::{ServerError, Value, cmd};
use tokio::time::Instant;

use super::line::{Line, Silence};

/// The oldest Redis whose word on its last rewrite can be believed (`rewrite.rs`): older ones call some that failed well.
const VERSION_MIN: (u32, u32) = (7, 0);
const SETTINGS: [&str; 4] = ["appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy"];

/// What Redis says of itself. `None` where it is not told.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Settings {
    append_only: Option<String>,
    append_fsync: Option<String>,
    no_fsync_on_rewrite: Option<String>,
    policy: Option<String>,
    /// Why CONFIG was refused.
    config_refused: Option<String>,
    version: Option<(u32, u32)>,
    replica: bool,
    replicas: u32,
    write_failed: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Must not hold a ledger, whatever was allowed.
    pub unfit: Option<String>,
    /// Acknowledged records can be lost by a crash.
    pub volatile: Vec<String>,
    /// Worth knowing, and no reason to refuse.
    pub risks: Vec<String>,
}

impl Settings {
    pub async fn ask(line: &Line, by: Instant) -> Result<Self, Silence> {
        let mut settings = Self::default();
        for name in SETTINGS {
            let value = match line.ask(cmd("CONFIG").arg("GET").arg(name), by).await? {
                Ok(Value::Array(pair)) => pair.into_iter().nth(1).and_then(text),
                Ok(_) => None,
                Err(error) => {
                    settings.config_refused = Some(shown(&error));
                    break;
                }
            };
            match name {
                "appendonly" => settings.append_only = value,
                "appendfsync" => settings.append_fsync = value,
                "no-appendfsync-on-rewrite" => settings.no_fsync_on_rewrite = value,
                _ => settings.policy = value,
            }
        }
        // A user who may not ask is not told.
        if let Ok(info) = line.ask(&cmd("INFO"), by).await? {
            settings.read_info(&text(info).unwrap_or_default());
        }
        Ok(settings)
    }

    fn read_info(&mut self, info: &str) {
        for (name, value) in info.lines().filter_map(|line| line.trim_end().split_once(':')) {
            match name {
                "redis_version" => {
                    let mut parts = value.split('.').map_while(|part| part.parse().ok());
                    self.version = parts.next().zip(parts.next());
                }
                "role" => self.replica = value == "slave",
                "connected_slaves" => self.replicas = value.parse().unwrap_or_default(),
                "aof_last_write_status" => self.write_failed = value != "ok",
                "aof_enabled" if self.append_only.is_none() && value == "0" => self.append_only = Some("no".into()),
                "maxmemory_policy" if self.policy.is_none() => self.policy = Some(value.into()),
                _ => {}
            }
        }
    }

    pub fn judge(&self) -> Judgement {
        let mut judgement = Judgement { unfit: self.unfit(), ..Judgement::default() };
        let volatile = &mut judgement.volatile;
        match (self.append_only.as_deref(), self.append_fsync.as_deref()) {
            (Some("yes"), Some("always")) => {}
            (Some("yes"), Some(fsync)) => volatile.push(format!(
                "appendfsync is {fsync}, not always: a crash of the machine loses what Redis acknowledged since its last flush, claims included"
            )),
            (Some(_), _) => {
                volatile.push("appendonly is no: a crash or restart of Redis loses what it acknowledged since its last snapshot, claims included".into())
            }
            (None, _) => volatile.push(format!(
                "CONFIG GET is refused ({}), so whether appendonly is yes and appendfsync is always cannot be told",
                self.config_refused.as_deref().unwrap_or("no answer")
            )),
        }
        if self.no_fsync_on_rewrite.as_deref() == Some("yes") {
            volatile.push(
                "no-appendfsync-on-rewrite is yes: while Redis rewrites its file nothing is flushed, so a crash of the machine loses it"
                    .into(),
            );
        }
        if self.write_failed {
            volatile.push("aof_last_write_status is not ok: Redis could not write its append-only file".into());
        }
        judgement.risks.clone_from(volatile);
        if self.policy.is_none() {
            judgement.risks.push("maxmemory-policy cannot be read; if it is not noeviction, records can vanish".into());
        }
        if self.replicas > 0 {
            let replicas = self.replicas;
            judgement.risks.push(format!(
                "{replicas} replica(s) follow asynchronously: a failover to one loses what was acknowledged and had not arrived there"
            ));
        }
        judgement
    }

    fn unfit(&self) -> Option<String> {
        let (major, minor) = VERSION_MIN;
        match (&self.version, self.policy.as_deref()) {
            (Some(version), _) if *version < VERSION_MIN => {
                Some(format!("this is Redis {}.{}; {major}.{minor} or newer is needed", version.0, version.1))
            }
            _ if self.replica => Some("this Redis is a replica and takes no writes; name the master".into()),
            (_, Some(policy)) if policy != "noeviction" => Some(format!(
                "maxmemory-policy is {policy}: Redis would throw records of the ledger away when memory is short; set it to noeviction"
            )),
            _ => None,
        }
    }
}

/// What to do about a judgement, in the words of `redis.conf`.
pub fn remedy(volatile: &[String]) -> String {
    accept_loss(&format!("{}; set appendonly yes, appendfsync always and no-appendfsync-on-rewrite no", volatile.join("; ")))
}

pub fn accept_loss(remedy: &str) -> String {
    format!("{remedy}, or accept the loss with allow_volatile: true")
}

/// A refusal, in Redis's words.
pub fn shown(error: &ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default()).trim_end().to_owned()
}

pub fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durable() -> Settings {
        let some = |text: &str| Some(text.to_owned());
        Settings {
            append_only: some("yes"),
            append_fsync: some("always"),
            no_fsync_on_rewrite: some("no"),
            policy: some("noeviction"),
            version: Some((7, 0)),
            ..Settings::default()
        }
    }

    #[test]
    fn only_a_flush_per_commit_is_durable() {
        assert_eq!(durable().judge(), Judgement::default());
        let check = |settings: Settings, part: &str| {
            let judgement = settings.judge();
            assert!(judgement.unfit.is_none() && judgement.volatile.len() == 1, "{judgement:?}");
            assert!(judgement.volatile[0].starts_with(part) && judgement.risks[0].starts_with(part), "{judgement:?}");
        };
        check(Settings { append_only: Some("no".into()), ..durable() }, "appendonly is no");
        check(Settings { append_fsync: Some("everysec".into()), ..durable() }, "appendfsync is everysec");
        check(Settings { no_fsync_on_rewrite: Some("yes".into()), ..durable() }, "no-appendfsync-on-rewrite is yes");
        let forbidden = Settings { append_only: None, append_fsync: None, config_refused: Some("NOPERM x".into()), ..durable() };
        check(forbidden, "CONFIG GET is refused (NOPERM x)");
        check(Settings { write_failed: true, ..durable() }, "aof_last_write_status");
    }

    #[test]
    fn some_servers_are_never_fit() {
        let check = |settings: Settings, part: &str| assert!(settings.judge().unfit.expect("unfit").contains(part));
        check(Settings { policy: Some("allkeys-lru".into()), ..durable() }, "allkeys-lru");
        check(Settings { version: Some((6, 2)), ..durable() }, "Redis 6.2");
        check(Settings { replica: true, ..durable() }, "replica");
    }

    #[test]
    fn replicas_are_a_risk_and_no_reason_to_refuse() {
        let mut settings = durable();
        settings.read_info("role:master\r\nconnected_slaves:2\r\nredis_version:7.2.4\r\naof_last_write_status:ok\r\n");
        let judgement = settings.judge();
        assert!(judgement.volatile.is_empty() && judgement.risks.len() == 1, "{judgement:?}");
        assert_eq!(settings.version, Some((7, 2)));
    }
}
