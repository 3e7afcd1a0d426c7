//! Where the ledger is: `redis://[user:password@]host[:port][/db][?ledger=NAME]`, `rediss://` for TLS.
//!
//! The label names the ledger in messages. It never holds the password.

use percent_encoding::percent_decode_str;
use redis::{ProtocolVersion, RedisConnectionInfo};
use url::Url;

use crate::OpenError;

const PORT: u16 = 6379;
const LEDGER: &str = "counterfoil";
/// A name is a part of every key.
const LEDGER_BYTES_MAX: usize = 64;

#[derive(Clone)]
pub struct Address {
    pub host: String,
    pub port: u16,
    pub tls: bool,
    pub ledger: String,
    db: i64,
    user: Option<String>,
    password: Option<String>,
}

impl Address {
    pub fn parse(text: &str) -> Result<Self, OpenError> {
        // The text itself may hold a password, so a mistake is told without it.
        let wrong = |message: String| OpenError::Unfit { store: "redis://…".into(), message };
        let url = Url::parse(text).map_err(|error| wrong(format!("the address is no URL: {error}")))?;
        let tls = match url.scheme() {
            "redis" => false,
            "rediss" => true,
            other => return Err(wrong(format!("the address begins with {other}://; redis:// and rediss:// are known"))),
        };
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| wrong("the address names no host".into()))?;
        let db = match url.path().trim_start_matches('/') {
            "" => 0,
            db => db.parse::<u16>().map_err(|_| wrong(format!("the database is {db:?}; a number is needed, as in redis://host:6379/0")))?,
        };
        let mut ledger = LEDGER.to_owned();
        for (name, value) in url.query_pairs() {
            match name.as_ref() {
                "ledger" => ledger = value.into_owned(),
                other => return Err(wrong(format!("the address has a parameter {other:?}; only ledger=NAME is known"))),
            }
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if ledger.is_empty() || ledger.len() > LEDGER_BYTES_MAX || !ledger.chars().all(plain) {
            return Err(wrong(format!(
                "the ledger's name is {ledger:?}; 1 to {LEDGER_BYTES_MAX} letters, digits, '.', '_' and '-' are allowed"
            )));
        }
        let decoded = |text: &str| {
            let text = percent_decode_str(text).decode_utf8().map_err(|_| wrong("user or password is not UTF-8".into()))?;
            Ok::<_, OpenError>((!text.is_empty()).then(|| text.into_owned()))
        };
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port().unwrap_or(PORT),
            tls,
            ledger,
            db: db.into(),
            user: decoded(url.username())?,
            password: decoded(url.password().unwrap_or_default())?,
        })
    }

    pub fn label(&self) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{scheme}://{host}:{}/{}?ledger={}", self.port, self.db, self.ledger)
    }

    pub fn login(&self, protocol: ProtocolVersion) -> RedisConnectionInfo {
        let mut login = RedisConnectionInfo::default().set_db(self.db).set_protocol(protocol).set_skip_set_lib_name();
        if let Some(user) = &self.user {
            login = login.set_username(user);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        login
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_labelled_without_the_password() {
        let check = |text: &str, label: &str, user: Option<&str>, password: Option<&str>| {
            let address = Address::parse(text).expect(text);
            assert_eq!((address.label().as_str(), address.user.as_deref(), address.password.as_deref()), (label, user, password));
        };
        check("redis://h", "redis://h:6379/0?ledger=counterfoil", None, None);
        check("rediss://u:s%40crt@h:1/3?ledger=acme", "rediss://h:1/3?ledger=acme", Some("u"), Some("s@crt"));
        check("redis://:secret@[::1]:7000", "redis://[::1]:7000/0?ledger=counterfoil", None, Some("secret"));
    }

    #[test]
    fn mistakes_are_named_and_the_password_is_not() {
        let check = |text: &str, part: &str| {
            let error = Address::parse(text).err().expect(text).to_string();
            assert!(error.contains(part), "{error}");
            assert!(!error.contains("hidden"), "{error}");
        };
        check("redis://u:hidden@h:port", "no URL");
        check("http://u:hidden@h", "begins with http://");
        check("redis://u:hidden@h/x", "\"x\"");
        check("redis://u:hidden@h?tenant=a", "\"tenant\"");
        check("redis://u:hidden@h?ledger=a%7D", "\"a}\"");
        check("redis://u:hidden@h?ledger=", "1 to 64");
    }
}
