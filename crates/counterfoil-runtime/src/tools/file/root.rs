//! The folder a file tool is confined to.
//!
//! Must stay true: nothing outside of it is ever opened. A path is walked one component at a time from an open folder to the next, and
//! no component may be a symbolic link; so one that is swapped in between the check and the use leads nowhere. Whoever holds
//! the root's lock is the only one who changes files here on our behalf.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use counterfoil_core::Failure;
use counterfoil_core::ids::Digest32;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, fchmod, flock, fstat, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Our own corner of the root: what was overwritten, and the lock.
pub(super) const OWN: &str = ".counterfoil";
/// Longest path and longest component; the kernel's own limits, told in our words.
const PATH_BYTES_MAX: usize = 4095;
const CHUNK_BYTES: usize = 64 * 1024;

const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);
const OWN_MODE: Mode = Mode::from_raw_mode(0o700);

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    pub sha256: Digest32,
    pub bytes: u64,
}

impl Stamp {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { sha256: Digest32::of(bytes), bytes: bytes.len() as u64 }
    }
}

/// A checked path inside the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inside {
    folders: Vec<String>,
    name: String,
}

impl Inside {
    pub(super) fn new(path: &str) -> Result<Self, Failure> {
        let refused = |why: &str| Err(Failure::new("path_refused", format!("the path {why}; nothing was touched")));
        if path.is_empty() || path.len() > PATH_BYTES_MAX || path.contains('\0') {
            return refused("is empty, too long, or holds a zero byte");
        }
        if path.starts_with('/') || path.contains('\\') {
            return refused("must be relative to the tool's root, with `/` between its parts");
        }
        let mut folders: Vec<String> = path.split('/').map(str::to_owned).collect();
        if folders.iter().any(|part| matches!(part.as_str(), "" | "." | "..")) {
            return refused("has an empty part, `.` or `..`");
        }
        // Case is folded, since some filesystems do.
        if folders[0].eq_ignore_ascii_case(OWN) {
            return refused("leads into the folder where overwritten files are kept");
        }
        match folders.pop() {
            Some(name) => Ok(Self { folders, name }),
            None => refused("is empty"),
        }
    }
}

/// An open folder, and a name in it.
pub(super) struct Place {
    pub folder: File,
    pub name: String,
}

/// The open root, locked until dropped.
pub(super) struct Root {
    folder: File,
    own: File,
    _lock: File,
}

impl Root {
    /// Waits for whoever changes files here.
    pub(super) fn lock(path: &Path) -> Result<Self, Failure> {
        let io = |error: io::Error| io_failure("the root cannot be opened", &error);
        let folder = File::open(path).map_err(io)?;
        let own = Self::descend(&folder, OWN, Some(OWN_MODE)).map_err(io)?;
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = File::from(openat(&own, "lock", flags, Mode::from_raw_mode(0o600)).map_err(|e| io(e.into()))?);
        while let Err(error) = flock(&lock, FlockOperation::LockExclusive) {
            if error != Errno::INTR {
                return Err(io(error.into()));
            }
        }
        Ok(Self { folder, own, _lock: lock })
    }

    /// Where overwritten files are kept.
    pub(super) fn kept(&self) -> io::Result<File> {
        Self::descend(&self.own, "kept", Some(OWN_MODE))
    }

    /// The place of a path. Folders on the way are made when `create` says so.
    pub(super) fn place(&self, path: &Inside, create: Create) -> io::Result<Place> {
        let mode = (create == Create::Folders).then_some(FOLDER_MODE);
        let mut folder = self.folder.try_clone()?;
        for part in &path.folders {
            folder = Self::descend(&folder, part, mode)?;
        }
        Ok(Place { folder, name: path.name.clone() })
    }

    /// What a file inside holds, without the lock: names are changed at once or not at all, and nothing is made for a look.
    pub(super) fn look(root: &Path, path: &Inside) -> io::Result<Option<Stamp>> {
        let mut folder = File::open(root)?;
        for part in &path.folders {
            folder = match Self::descend(&folder, part, None) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                below => below?,
            };
        }
        Place { folder, name: path.name.clone() }.stamp()
    }

    fn descend(folder: &File, name: &str, create: Option<Mode>) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match (openat(folder, name, flags, Mode::empty()), create) {
            (Err(Errno::NOENT), Some(mode)) => {
                match mkdirat(folder, name, mode) {
                    Ok(()) => folder.sync_all()?,
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                Ok(openat(folder, name, flags, Mode::empty())?.into())
            }
            (opened, _) => Ok(opened?.into()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Create {
    Folders,
    Nothing,
}

impl Place {
    /// What is there. A folder, a link or a device is an error: these are never replaced.
    pub(super) fn stamp(&self) -> io::Result<Option<Stamp>> {
        let Some(mut file) = self.open()? else { return Ok(None) };
        copy(&mut file, &mut io::sink()).map(Some)
    }

    /// The regular file there.
    pub(super) fn open(&self) -> io::Result<Option<File>> {
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
            }
            Ok(_) => {}
        }
        // Never blocks, should it have become a pipe since.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(&self.folder, &self.name, flags, Mode::empty()) {
            Ok(file) => Ok(Some(file.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Who may read and write what is there.
    pub(super) fn mode(&self) -> Option<Mode> {
        statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| permissions(&stat))
    }

    /// Writes `content` beside the place, durable.
    pub(super) fn stage(&self, temporary: &str, mode: Option<Mode>, content: &mut dyn Read) -> io::Result<Stamp> {
        // What a crash left behind.
        self.discard(temporary);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&self.folder, temporary, flags, Mode::from_raw_mode(0o644))?);
        if let Some(mode) = mode {
            fchmod(&file, mode)?;
        }
        let stamp = copy(content, &mut file)?;
        file.sync_all()?;
        Ok(stamp)
    }

    /// Puts what was staged in its place: at once, or not at all.
    pub(super) fn commit(&self, temporary: &str) -> io::Result<()> {
        Ok(renameat(&self.folder, temporary, &self.folder, &self.name)?)
    }

    pub(super) fn discard(&self, temporary: &str) {
        let _ = unlinkat(&self.folder, temporary, AtFlags::empty());
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        Ok(unlinkat(&self.folder, &self.name, AtFlags::empty())?)
    }

    pub(super) fn move_to(&self, other: &Self) -> io::Result<()> {
        Ok(renameat(&self.folder, &self.name, &other.folder, &other.name)?)
    }

    /// Makes the change of names durable.
    pub(super) fn settle(&self) -> io::Result<()> {
        self.folder.sync_all()
    }
}

/// The permissions of an open file.
pub(super) fn mode_of(file: &File) -> io::Result<Mode> {
    Ok(permissions(&fstat(file)?))
}

/// Without set-uid and its like: new content must not inherit that trust.
fn permissions(stat: &rustix::fs::Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode & 0o777)
}

fn copy(from: &mut dyn Read, to: &mut dyn Write) -> io::Result<Stamp> {
    let (mut hash, mut bytes, mut chunk) = (Sha256::new(), 0, vec![0; CHUNK_BYTES]);
    loop {
        match from.read(&mut chunk) {
            Ok(0) => return Ok(Stamp { sha256: Digest32(hash.finalize().into()), bytes }),
            Ok(read) => {
                hash.update(&chunk[..read]);
                to.write_all(&chunk[..read])?;
                bytes += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A failure of the filesystem, in words. Says nothing about the world: the caller knows how far it got.
pub(super) fn io_failure(what: &str, error: &io::Error) -> Failure {
    let message = format!("{what}: {error}");
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::Interrupted => {
            Failure::of_dependency("file_io", message)
        }
        _ if matches!(Errno::from_io_error(error), Some(Errno::LOOP | Errno::NOTDIR)) => {
            Failure::new("path_refused", format!("{what}: a part of the path is a symbolic link or not a folder; it was not followed"))
        }
        _ => Failure::new("file_io", message),
    }
}

/// The root as configured.
pub(super) fn check(root: &Path) -> Result<PathBuf, String> {
    match root.canonicalize() {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(_) => Err(format!("the root {} is not a folder", root.display())),
        Err(error) => Err(format!("the root {} cannot be used: {error}", root.display())),
    }
}
