//! Where the private key is kept: a file that only its owner may read, never the ledger.
//!
//! `signing.key` is the key that signs now; `ID.pub` are the public ones, old and new, to be handed to whoever verifies. What must stay true: no key is ever
//! overwritten by chance, and none signs that the ledger does not know. A rotation is recorded in the ledger before the new key takes the old one's place here;
//! between the two it waits as `next.key`, and whoever comes next finishes it.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use counterfoil_evidence::keys::Introduced;
use counterfoil_evidence::{PublicKey, SecretKey};
use counterfoil_runtime::log::{Log, LogError};
use thiserror::Error;

const SIGNING: &str = "signing.key";
const NEXT: &str = "next.key";

/// Where keys are kept beside a config, unless said otherwise.
pub const DIR: &str = ".counterfoil/keys";

#[derive(Debug, Error)]
pub enum KeyringError {
    #[error("{path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error("{path}: others than its owner may read it (mode {mode:o}); if nobody has: chmod 600 {path}")]
    Exposed { path: String, mode: u32 },
    #[error("{path}: {source}; it was not changed")]
    Malformed { path: String, source: counterfoil_evidence::keys::KeyError },
    #[error("{path} is there already, with key {id}: nothing was changed; `counterfoil keys rotate` replaces it")]
    Exists { path: String, id: String },
    #[error(
        "{path} is not there, and this ledger is signed with key {newest}: copy that file here from where the ledger was sealed; if the key is lost, \
         `counterfoil keys rotate --lost` begins with a new one"
    )]
    Missing { path: String, newest: String },
    #[error("{path} has key {found}, and this ledger is signed with key {newest}: it belongs to another ledger, or was rotated elsewhere")]
    NotCurrent { path: String, found: String, newest: String },
    #[error(transparent)]
    Log(#[from] LogError),
}

impl KeyringError {
    /// Stable; each has a page in docs/errors.
    pub fn code(&self) -> &'static str {
        match self {
            Self::File { .. } | Self::Exposed { .. } | Self::Malformed { .. } => "key_unreadable",
            Self::Exists { .. } => "key_exists",
            Self::Missing { .. } => "key_missing",
            Self::NotCurrent { .. } => "key_not_current",
            Self::Log(error) => error.code(),
        }
    }
}

/// Keys in one folder.
#[derive(Debug, Clone)]
pub struct Keyring {
    dir: PathBuf,
}

/// A key that may sign, and whether it was made just now.
#[derive(Debug)]
pub struct Ready {
    pub secret: SecretKey,
    pub made: bool,
}

impl Keyring {
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    pub fn signing_path(&self) -> PathBuf {
        self.dir.join(SIGNING)
    }

    pub fn public_path(&self, key: &PublicKey) -> PathBuf {
        self.dir.join(format!("{}.pub", key.id()))
    }

    /// The key that signs, if there is one here.
    pub fn signing(&self) -> Result<Option<SecretKey>, KeyringError> {
        read(&self.signing_path())
    }

    /// The key that signs here, known to the ledger. The first one of a ledger is made on the way; where the ledger has one already and it is not here, nothing is.
    pub async fn ready(&self, log: &Log, by: &str) -> Result<Ready, KeyringError> {
        let keys = log.keys().await?;
        let (secret, made) = match self.signing()? {
            Some(secret) => (secret, false),
            None => match keys.last() {
                Some(newest) => return Err(KeyringError::Missing { path: shown(&self.signing_path()), newest: newest.key.id() }),
                None => self.made()?,
            },
        };
        let secret = self.finish_rotation(secret, &keys)?;
        self.known(log, &secret, &keys, by).await?;
        Ok(Ready { secret, made })
    }

    /// Makes the first key. Refused where there is one, here or in the ledger.
    pub async fn generate(&self, log: &Log, by: &str) -> Result<SecretKey, KeyringError> {
        let exists = |secret: &SecretKey| KeyringError::Exists { path: shown(&self.signing_path()), id: secret.public().id() };
        if let Some(secret) = self.signing()? {
            return Err(exists(&secret));
        }
        match self.ready(log, by).await? {
            Ready { secret, made: true } => Ok(secret),
            Ready { secret, .. } => Err(exists(&secret)),
        }
    }

    /// Begins with a new key, which the old one vouches for; or with nobody's word, where the old one is `lost`.
    pub async fn rotate(&self, log: &Log, by: &str, lost: bool) -> Result<(PublicKey, SecretKey), KeyringError> {
        let old = match lost {
            true => None,
            false => Some(self.ready(log, by).await?.secret),
        };
        let keys = log.keys().await?;
        let next = self.dir.join(NEXT);
        let new = match read(&next)? {
            Some(begun) => begun,
            None => self.write_new(NEXT)?.0,
        };
        if !log.introduce(&new, old.as_ref(), by, &keys).await? {
            let newest = log.keys().await?.last().map(|newest| newest.key.id()).unwrap_or_default();
            return Err(KeyringError::NotCurrent { path: shown(&next), found: new.public().id(), newest });
        }
        self.take_place(&new)?;
        log.sign_again(&new).await?;
        let replaced = old.map(|old| old.public()).or(keys.last().map(|last| last.key)).unwrap_or(new.public());
        Ok((replaced, new))
    }

    /// A rotation that was recorded and not finished here: the new key takes its place.
    fn finish_rotation(&self, secret: SecretKey, keys: &[Introduced]) -> Result<SecretKey, KeyringError> {
        let newest = keys.last().map(|newest| newest.key);
        if newest.is_none_or(|newest| newest == secret.public()) {
            return Ok(secret);
        }
        match read(&self.dir.join(NEXT))? {
            Some(next) if Some(next.public()) == newest => {
                self.take_place(&next)?;
                Ok(next)
            }
            _ => Ok(secret),
        }
    }

    /// The ledger knows the key as its newest; the first one is told to it.
    async fn known(&self, log: &Log, secret: &SecretKey, keys: &[Introduced], by: &str) -> Result<(), KeyringError> {
        if keys.is_empty() && log.introduce(secret, None, by, keys).await? {
            return Ok(());
        }
        let keys = log.keys().await?;
        match keys.last() {
            Some(newest) if newest.key == secret.public() => Ok(()),
            newest => Err(KeyringError::NotCurrent {
                path: shown(&self.signing_path()),
                found: secret.public().id(),
                newest: newest.map_or_else(|| "none".to_owned(), |newest| newest.key.id()),
            }),
        }
    }

    /// A first key; or the one that another process has made in the same moment.
    fn made(&self) -> Result<(SecretKey, bool), KeyringError> {
        self.write_new(SIGNING)
    }

    /// Writes a new key under that name, whole or not at all. Whoever is there first stays: then its key, and `false`.
    fn write_new(&self, name: &str) -> Result<(SecretKey, bool), KeyringError> {
        let failed = |path: &Path| {
            let path = shown(path);
            move |source| KeyringError::File { path, source }
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).map_err(failed(&self.dir))?;
        let secret = SecretKey::from_seed(&counterfoil_runtime::unguessable());
        let path = self.dir.join(name);
        let draft = self.dir.join(format!("{name}.{}", secret.public().id()));
        let written = write_whole(&draft, &format!("{}\n", secret.reveal()), 0o600);
        // A link is refused where the name is taken; a rename would not be.
        let placed = written.and_then(|()| fs::hard_link(&draft, &path));
        drop(fs::remove_file(&draft));
        match placed {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let there = read(&path)?.ok_or_else(|| failed(&path)(ErrorKind::NotFound.into()))?;
                return Ok((there, false));
            }
            Err(source) => return Err(failed(&path)(source)),
        }
        let public = self.public_path(&secret.public());
        write_whole(&public, &format!("{}\n", secret.public()), 0o644).map_err(failed(&public))?;
        fs::File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(failed(&self.dir))?;
        Ok((secret, true))
    }

    fn take_place(&self, new: &SecretKey) -> Result<(), KeyringError> {
        let (next, signing) = (self.dir.join(NEXT), self.signing_path());
        match fs::rename(&next, &signing) {
            // Another process has finished it.
            Err(error) if error.kind() == ErrorKind::NotFound && self.signing()?.is_some_and(|there| there.public() == new.public()) => {
                Ok(())
            }
            moved => moved.map_err(|source| KeyringError::File { path: shown(&next), source }),
        }
    }
}

fn read(path: &Path) -> Result<Option<SecretKey>, KeyringError> {
    let failed = |source| KeyringError::File { path: shown(path), source };
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        metadata => metadata.map_err(failed)?,
    };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyringError::Exposed { path: shown(path), mode });
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    text.trim().parse().map(Some).map_err(|source| KeyringError::Malformed { path: shown(path), source })
}

fn write_whole(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
