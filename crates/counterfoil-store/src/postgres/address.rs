//! Where the ledger is: what a `postgres://` URL says, and what of it may be shown.
//!
//! The password is in the configuration of the connection and nowhere else: every message names the label.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::PostgresOptions;
use super::fault::words;
use super::tls::{self, Tls, Trust};
use crate::OpenError;

pub struct Address {
    pub config: Config,
    pub tls: Tls,
    /// `postgres://user@host:port/database?schema=name`: for people, without the password.
    pub label: String,
    /// A checked name: lower-case letters, digits and `_`.
    pub schema: String,
}

impl Address {
    pub fn parse(url: &str, options: &PostgresOptions) -> Result<Self, OpenError> {
        // Until the URL is understood, nothing in it is known not to be the password.
        let unfit = |message: String| OpenError::Unfit { store: "postgres://…".into(), message };
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        let mut left = Vec::new();
        let (mut schema, mut mode, mut roots) = (options.schema.clone(), "prefer".to_owned(), None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = || percent_decode_str(value).decode_utf8().map(|text| text.into_owned());
            let value = decoded().map_err(|_| unfit(format!("parameter {name}: its value is not UTF-8")))?;
            match name {
                "schema" => schema = value,
                "sslmode" => mode = value,
                "sslrootcert" => roots = Some(PathBuf::from(value)),
                _ => left.push(pair),
            }
        }
        if !is_schema_name(&schema) {
            return Err(unfit(format!(
                "schema {schema:?}: a schema's name has 1 to 63 lower-case letters, digits and underscores, and no digit first"
            )));
        }
        let rest = if left.is_empty() { place.to_owned() } else { format!("{place}?{}", left.join("&")) };
        let mut config: Config = rest.parse().map_err(|error| unfit(words(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(unfit("the URL names no host; write postgres://user@host:port/database".into()));
        }
        let (ssl_mode, trust) = match mode.as_str() {
            "disable" => (SslMode::Disable, Trust::Anyone),
            "prefer" => (SslMode::Prefer, Trust::Anyone),
            "require" => (SslMode::Require, Trust::Anyone),
            "verify-full" => (SslMode::Require, roots.map_or(Trust::System, Trust::File)),
            other => return Err(unfit(format!("sslmode {other:?}: use disable, prefer, require or verify-full"))),
        };
        let label = label(&config, &schema);
        let tls = tls::Tls::new(&trust).map_err(|message| OpenError::Unfit { store: label.clone(), message })?;
        tune(&mut config, options);
        config.ssl_mode(ssl_mode);
        Ok(Self { config, tls, label, schema })
    }

    /// The schema's name as it stands in SQL.
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.schema)
    }
}

/// A peer that is gone is noticed; a standby is not taken for the ledger.
fn tune(config: &mut Config, options: &PostgresOptions) {
    if config.get_application_name().is_none() {
        config.application_name("counterfoil");
    }
    config
        .connect_timeout(options.connect_max)
        .tcp_user_timeout(options.patience)
        .keepalives(true)
        .keepalives_idle(Duration::from_secs(15))
        .keepalives_interval(Duration::from_secs(5))
        .keepalives_retries(3)
        .target_session_attrs(TargetSessionAttrs::ReadWrite);
}

fn is_schema_name(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
        && !name.starts_with(|first: char| first.is_ascii_digit())
}

fn label(config: &Config, schema: &str) -> String {
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) if name.contains(':') => format!("[{name}]"),
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let hosts: Vec<String> = match config.get_hosts() {
        [] => config.get_hostaddrs().iter().map(ToString::to_string).collect(),
        _ => hosts.collect(),
    };
    let ports = config.get_ports();
    let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(5432);
    let places: Vec<String> = hosts.iter().enumerate().map(|(index, host)| format!("{host}:{}", port(index))).collect();
    let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("postgres://{user}{}/{database}?schema={schema}", places.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, OpenError> {
        Address::parse(url, &PostgresOptions::default())
    }

    #[test]
    fn what_is_shown_has_no_password() {
        let check = |url: &str, label: &str| {
            let address = parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(address.label, label);
        };
        check("postgres://ann:s3cret@db:5433/app", "postgres://ann@db:5433/app?schema=counterfoil");
        check("postgresql://ann:s%40cret@db/app?schema=books&sslmode=disable", "postgres://ann@db:5432/app?schema=books");
        check("postgres://ann:s3cret@[::1]/app?connect_timeout=3", "postgres://ann@[::1]:5432/app?schema=counterfoil");
        check("postgres://ann:x@a:1,b:2/app", "postgres://ann@a:1,b:2/app?schema=counterfoil");
        check("postgres://ann@%2Frun%2Fpg/app", "postgres://ann@/run/pg:5432/app?schema=counterfoil");
    }

    #[test]
    fn what_is_refused_names_the_field_and_not_the_password() {
        let check = |url: &str, named: &str| {
            let error = parse(url).err().unwrap_or_else(|| panic!("{url} was taken")).to_string();
            assert!(error.contains(named), "{url}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        };
        check("postgres://ann:s3cret@db/app?schema=Robert'); --", "schema");
        check("postgres://ann:s3cret@db/app?schema=1st", "schema");
        check("postgres://ann:s3cret@db/app?sslmode=verify-ca", "sslmode");
        check("postgres://ann:s3cret@db/app?sslmode=verify-full&sslrootcert=/nowhere.pem", "/nowhere.pem");
        check("postgres://ann:s3cret@db/app?colour=red", "colour");
        check("postgres://ann:s3cret@db:port/app", "port");
        check("postgres:///app", "host");
    }
}
