//! `counterfoil keys`: who signs for this ledger.

use counterfoil::keyring::{Keyring, KeyringError, Ready};
use counterfoil_core::Caller;
use counterfoil_evidence::PublicKey;
use counterfoil_evidence::keys::first_unvouched;
use counterfoil_runtime::Log;
use counterfoil_runtime::shown::time;
use serde_json::json;

use super::house::{House, config_path};
use crate::cli::{Global, KeysArgs, KeysCommand};
use crate::output::{self, Exit, Refused};

pub async fn run(global: &Global, args: &KeysArgs) -> anyhow::Result<Exit> {
    let house = match &args.command {
        KeysCommand::Show => House::standing(global).await?,
        KeysCommand::Generate | KeysCommand::Rotate { .. } => House::open(global).await?,
    };
    let (keyring, log) = (keyring(global), Log::new(&house.runtime));
    match &args.command {
        KeysCommand::Generate => {
            let secret = keyring.generate(&log, &by()).await.map_err(refused)?;
            tell(global, &keyring, &secret.public(), None);
        }
        KeysCommand::Rotate { lost } => {
            let (old, secret) = keyring.rotate(&log, &by(), *lost).await.map_err(refused)?;
            tell(global, &keyring, &secret.public(), Some(old));
            if *lost && !global.json {
                output::note("nobody vouches for it: the lost one could not sign it, so whoever verifies must be told to trust it");
            }
        }
        KeysCommand::Show => return show(global, &keyring, &log).await,
    }
    Ok(Exit::Done)
}

/// Where this command's keys are.
pub fn keyring(global: &Global) -> Keyring {
    let beside = || config_path(global).and_then(|config| config.parent().map(|folder| folder.join(counterfoil::keyring::DIR)));
    Keyring::new(global.keys.clone().or_else(beside).unwrap_or_else(|| counterfoil::keyring::DIR.into()))
}

/// The key to sign with. One that had to be made is told of.
pub async fn ready(keyring: &Keyring, log: &Log) -> Result<Ready, KeyringError> {
    let ready = keyring.ready(log, &by()).await?;
    if ready.made {
        let (key, path) = (ready.secret.public(), keyring.signing_path());
        output::note(format_args!(
            "a key was made to sign with: {}\nits private part is in {}; whoever verifies needs the public one: {key}",
            key.id(),
            path.display()
        ));
    }
    Ok(ready)
}

pub fn refused(error: KeyringError) -> anyhow::Error {
    let (exit, code) = match &error {
        KeyringError::Log(_) => (Exit::Broken, error.code()),
        KeyringError::Exists { .. } | KeyringError::Missing { .. } | KeyringError::NotCurrent { .. } => (Exit::Refused, error.code()),
        KeyringError::File { .. } | KeyringError::Exposed { .. } | KeyringError::Malformed { .. } => (Exit::Usage, error.code()),
    };
    Refused { exit, code, message: error.to_string(), detail: None }.into()
}

/// Who did it, as the ledger will have it.
fn by() -> String {
    std::env::var("USER").ok().filter(|user| Caller::new(user).is_ok()).unwrap_or_else(|| "cli".into())
}

fn tell(global: &Global, keyring: &Keyring, key: &PublicKey, replaced: Option<PublicKey>) {
    let (private, public) = (keyring.signing_path(), keyring.public_path(key));
    if global.json {
        let replaces = replaced.map(|old| old.id());
        return output::json(&json!({ "id": key.id(), "key": key, "private": private, "public": public, "replaces": replaces }));
    }
    output::data(key);
    if let Some(old) = replaced {
        output::note(format_args!("key {} follows key {}: what that one signed stays valid", key.id(), old.id()));
    }
    output::note(format_args!("its private part is in {}: keep it secret, and keep a copy", private.display()));
    output::note(format_args!("whoever verifies needs the line above, or the file {}", public.display()));
}

async fn show(global: &Global, keyring: &Keyring, log: &Log) -> anyhow::Result<Exit> {
    let here = keyring.signing().map_err(refused)?.map(|secret| secret.public());
    let keys = log.keys().await?;
    let unvouched = first_unvouched(&keys).map(|introduced| introduced.key);
    let newest = keys.last().map(|newest| newest.key);
    if global.json {
        let shown = keys.iter().map(|introduced| {
            json!({
                "id": introduced.key.id(), "key": introduced.key, "at": time(introduced.at), "by": introduced.by,
                "signs": Some(introduced.key) == newest, "here": Some(introduced.key) == here, "vouched": introduced.vouched.is_some(),
            })
        });
        output::json(&json!({ "keys": shown.collect::<Vec<_>>(), "private": keyring.signing_path() }));
        return Ok(Exit::Done);
    }
    let mut table = output::table(&["id", "since", "by", "", "key"]);
    for introduced in &keys {
        let signs = if Some(introduced.key) == newest { "signs" } else { "old" };
        table.add_row([introduced.key.id(), time(introduced.at), introduced.by.clone(), signs.into(), introduced.key.to_string()]);
    }
    output::print_table(&table);
    match (newest, here) {
        (None, _) => output::note("there is no key yet: the first sealing makes one"),
        (Some(newest), here) if here != Some(newest) => {
            output::note(format_args!("the private part of {} is not in {}", newest.id(), keyring.signing_path().display()));
        }
        _ => {}
    }
    if let Some(key) = unvouched {
        output::note(format_args!("the key before {} did not vouch for it", key.id()));
    }
    Ok(Exit::Done)
}
