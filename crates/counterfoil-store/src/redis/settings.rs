//! Whether this Redis can hold a ledger: what it says of its persistence, its memory, its role; and what is at risk as it is set.

use redis::{ServerError, Value, cmd};
use tokio::time::Instant;

use super::line::{Line, Silence};
use super::rewrite::Rewritten;

/// The oldest Redis that knows every command used.
const VERSION_MIN: (u32, u32) = (6, 2);
const SETTINGS: [&str; 5] = ["appendonly", "appendfsync", "no-appendfsync-on-rewrite", "aof-load-truncated", "maxmemory-policy"];

/// What Redis says of itself. `None` where it is not told.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Settings {
    append_only: Option<String>,
    append_fsync: Option<String>,
    no_fsync_on_rewrite: Option<String>,
    load_truncated: Option<String>,
    policy: Option<String>,
    /// Why CONFIG was refused.
    config_refused: Option<String>,
    version: Option<(u32, u32)>,
    replica: bool,
    replicas: u32,
    write_failed: bool,
    /// A rewrite of the append-only file is under way, or will be.
    rewriting: bool,
    /// One has ended since Redis started.
    rewrite_ended: bool,
    /// The last one failed.
    rewrite_failed: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Must not hold a ledger, whatever was allowed.
    pub unfit: Option<String>,
    /// Nothing may be written yet.
    pub not_yet: Option<String>,
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
                "aof-load-truncated" => settings.load_truncated = value,
                _ => settings.policy = value,
            }
        }
        // A user who may not ask is not told.
        let _ = settings.ask_info(line, by).await?;
        Ok(settings)
    }

    pub async fn ask_info(&mut self, line: &Line, by: Instant) -> Result<Result<(), ServerError>, Silence> {
        let info = line.ask(&cmd("INFO"), by).await?;
        Ok(info.map(|info| self.read_info(&text(info).unwrap_or_default())))
    }

    /// Redis may have cut its file in the middle of a transaction when it started, and has not rewritten it since. The first rewrite that ends well mends it.
    pub fn is_perhaps_torn(&self) -> bool {
        let rewritten = self.rewrite_ended && !self.rewrite_failed;
        self.append_only.as_deref() != Some("no") && self.load_truncated.as_deref() != Some("no") && !rewritten
    }

    pub fn is_rewriting(&self) -> bool {
        self.rewriting
    }

    fn read_info(&mut self, info: &str) {
        self.rewriting = false;
        for (name, value) in info.lines().filter_map(|line| line.trim_end().split_once(':')) {
            match name {
                "redis_version" => {
                    let mut parts = value.split('.').map_while(|part| part.parse().ok());
                    self.version = parts.next().zip(parts.next());
                }
                "role" => self.replica = value == "slave",
                "connected_slaves" => self.replicas = value.parse().unwrap_or_default(),
                "aof_last_write_status" => self.write_failed = value != "ok",
                "aof_rewrite_in_progress" | "aof_rewrite_scheduled" => self.rewriting |= value == "1",
                "aof_last_rewrite_time_sec" => self.rewrite_ended = value != "-1",
                "aof_last_bgrewrite_status" => self.rewrite_failed = value != "ok",
                "aof_enabled" if self.append_only.is_none() && value == "0" => self.append_only = Some("no".into()),
                "maxmemory_policy" if self.policy.is_none() => self.policy = Some(value.into()),
                _ => {}
            }
        }
    }

    pub fn judge(&self, rewritten: Rewritten) -> Judgement {
        let mut judgement = Judgement { unfit: self.unfit(), ..Judgement::default() };
        let volatile = &mut judgement.volatile;
        match rewritten {
            Rewritten::Yes => {}
            Rewritten::NotYet(why) => judgement.not_yet = Some(why),
            Rewritten::Forbidden(why) => volatile.push(format!(
                "{why}, so Redis cannot be told to rewrite its file after a start: if it was killed in the middle of a batch, its second start can bring \
                 that batch back in the place of acknowledged ones; allow the command, or set aof-load-truncated no"
            )),
        }
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

    pub fn unfit(&self) -> Option<String> {
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
    format!(
        "{}; set appendonly yes, appendfsync always and no-appendfsync-on-rewrite no, or accept the loss with allow_volatile: true",
        volatile.join("; ")
    )
}

/// A refusal, in Redis's words.
pub fn shown(error: &ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default()).trim_end().to_owned()
}

fn text(value: Value) -> Option<String> {
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
        assert_eq!(durable().judge(Rewritten::Yes), Judgement::default());
        let check = |settings: Settings, part: &str| {
            let judgement = settings.judge(Rewritten::Yes);
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
    fn a_file_that_was_not_rewritten_since_the_start_may_be_torn() {
        let check = |settings: Settings, info: &str, torn: bool| {
            let mut settings = settings;
            settings.read_info(info);
            assert_eq!(settings.is_perhaps_torn(), torn, "{settings:?}");
        };
        let started =
            "aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\naof_last_rewrite_time_sec:-1\r\naof_last_bgrewrite_status:ok\r\n";
        check(durable(), started, true);
        check(durable(), "", true);
        check(durable(), &started.replace("sec:-1", "sec:0"), false);
        check(durable(), &started.replace("sec:-1", "sec:3").replace("ok", "err"), true);
        check(Settings { load_truncated: Some("yes".into()), ..durable() }, started, true);
        check(Settings { load_truncated: Some("no".into()), ..durable() }, started, false);
        check(Settings { append_only: Some("no".into()), ..durable() }, started, false);
        let mut settings = durable();
        for (info, rewriting) in
            [("aof_rewrite_in_progress:1", true), ("aof_rewrite_in_progress:0\naof_rewrite_scheduled:1", true), (started, false)]
        {
            settings.read_info(info);
            assert_eq!(settings.is_rewriting(), rewriting, "{info}");
        }
        let refused = durable().judge(Rewritten::Forbidden("BGREWRITEAOF is refused (NOPERM)".into()));
        assert!(refused.volatile[0].contains("NOPERM") && refused.volatile[0].contains("aof-load-truncated no"), "{refused:?}");
        assert_eq!(durable().judge(Rewritten::NotYet("later".into())).not_yet.as_deref(), Some("later"));
    }

    #[test]
    fn some_servers_are_never_fit() {
        let check = |settings: Settings, part: &str| assert!(settings.judge(Rewritten::Yes).unfit.expect("unfit").contains(part));
        check(Settings { policy: Some("allkeys-lru".into()), ..durable() }, "allkeys-lru");
        check(Settings { version: Some((6, 0)), ..durable() }, "Redis 6.0");
        check(Settings { replica: true, ..durable() }, "replica");
    }

    #[test]
    fn replicas_are_a_risk_and_no_reason_to_refuse() {
        let mut settings = durable();
        settings.read_info("role:master\r\nconnected_slaves:2\r\nredis_version:7.2.4\r\naof_last_write_status:ok\r\n");
        let judgement = settings.judge(Rewritten::Yes);
        assert!(judgement.volatile.is_empty() && judgement.risks.len() == 1, "{judgement:?}");
        assert_eq!(settings.version, Some((7, 2)));
    }
}
