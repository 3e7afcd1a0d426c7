//! Which workers of this machine are certainly dead.
//!
//! Each process holds an operating-system lock on a file of its own beside the ledger; the kernel gives it back when the process ends, however it
//! ends. So a claim of a killed process need not be waited out. A paused process still holds its lock. "Gone" is only said when the lock
//! could be taken; whatever is uncertain (no file, another host) is "not known to be gone", and the lease decides. So a process that ends with a claim
//! whose outcome it could not record leaves its file behind, without the lock: others know at once.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use counterfoil_core::ids::NAME_BYTES_MAX;
use counterfoil_core::{Caller, WorkerId};

/// Lock files of dead workers are swept after this long; by then every lease has long run out.
const SWEEP_AFTER: Duration = Duration::from_secs(24 * 3600);

/// A client that was lent a permit is named by this and its caller. It has no lock file: only its lease tells whether it lives.
const CLIENT: &str = "client:";

/// The holder of a permit that is lent to `caller`.
pub fn client(caller: &Caller) -> WorkerId {
    let name = caller.as_str().chars().map(|c| if c == '/' { '_' } else { c });
    let id: String = CLIENT.chars().chain(name).take(NAME_BYTES_MAX).collect();
    WorkerId::new(&id).expect("printable ASCII, and not too long")
}

pub fn is_client(worker: &WorkerId) -> bool {
    worker.as_str().starts_with(CLIENT)
}

#[derive(Debug)]
pub enum Liveness {
    /// Workers may be anywhere: only leases tell.
    Leases,
    Locks(Locks),
}

#[derive(Debug)]
pub struct Locks {
    dir: PathBuf,
    own: PathBuf,
    unsettled: Arc<AtomicUsize>,
    /// Held as long as this process lives.
    _lock: File,
}

/// A claim that is made or about to be made. Unless it is settled, the worker's file outlives the worker.
#[derive(Debug)]
#[must_use]
pub struct Unsettled(Option<Arc<AtomicUsize>>);

impl Unsettled {
    /// Its outcome is recorded, or there was no claim after all.
    pub fn settled(self) {
        if let Some(count) = self.0 {
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Liveness {
    /// Announces `worker` in `dir`, which is created.
    pub fn announce(dir: &Path, worker: &WorkerId) -> io::Result<Self> {
        let refused = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{worker} cannot name a file: a worker's id holds no `/` and does not begin with `{CLIENT}`"),
            )
        };
        let own = file_of(dir, worker).ok_or_else(refused)?;
        std::fs::create_dir_all(dir)?;
        sweep(dir);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&own)?;
        lock.try_lock().map_err(|e| match e {
            TryLockError::Error(e) => e,
            TryLockError::WouldBlock => io::Error::other(format!("another process calls itself {worker}")),
        })?;
        Ok(Self::Locks(Locks { dir: dir.to_owned(), own, unsettled: Arc::default(), _lock: lock }))
    }

    pub fn claiming(&self) -> Unsettled {
        Unsettled(match self {
            Self::Leases => None,
            Self::Locks(locks) => {
                locks.unsettled.fetch_add(1, Ordering::SeqCst);
                Some(locks.unsettled.clone())
            }
        })
    }

    /// Whether `worker` is certainly a process that lives, if only paused.
    pub fn lives(&self, worker: &WorkerId) -> bool {
        match self {
            Self::Leases => false,
            Self::Locks(locks) => {
                file_of(&locks.dir, worker).is_some_and(|path| path == locks.own || path.exists() && !lock_is_free(&path))
            }
        }
    }

    /// Whether `worker` is certainly dead.
    pub fn gone(&self, worker: &WorkerId) -> bool {
        match self {
            Self::Leases => false,
            Self::Locks(locks) => file_of(&locks.dir, worker).is_some_and(|path| path != locks.own && lock_is_free(&path)),
        }
    }
}

impl Liveness {
    /// Whether `worker` is dead, or has ended as it should: it announces itself here no more. A worker that never did is taken for one of those, so this
    /// is only for what may be taken on twice.
    pub fn away(&self, worker: &WorkerId) -> bool {
        match self {
            Self::Leases => false,
            Self::Locks(locks) => {
                file_of(&locks.dir, worker).is_some_and(|path| path != locks.own && (!path.exists() || lock_is_free(&path)))
            }
        }
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        if self.unsettled.load(Ordering::SeqCst) == 0 {
            // Best effort: a file left behind is swept later.
            drop(std::fs::remove_file(&self.own));
        }
    }
}

/// An id that leads out of `dir` has no file: it would have us lock, judge by or remove what is somebody else's.
fn file_of(dir: &Path, worker: &WorkerId) -> Option<PathBuf> {
    let id = worker.as_str();
    (!id.contains('/') && id != "." && id != ".." && !is_client(worker)).then(|| dir.join(id))
}

fn lock_is_free(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock_shared().is_ok())
}

fn sweep(dir: &Path) {
    let Ok(files) = std::fs::read_dir(dir) else { return };
    for file in files.flatten() {
        let old = file.metadata().and_then(|m| m.modified()).is_ok_and(|at| at.elapsed().is_ok_and(|age| age > SWEEP_AFTER));
        if old && lock_is_free(&file.path()) {
            drop(std::fs::remove_file(file.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_worker_is_not_gone_and_a_dead_one_is() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (WorkerId::new("a").unwrap(), WorkerId::new("b").unwrap());
        let first = Liveness::announce(dir.path(), &a).unwrap();
        let second = Liveness::announce(dir.path(), &b).unwrap();
        assert!(!first.gone(&b) && !second.gone(&a) && !first.gone(&a));
        let unknown = WorkerId::new("never-heard-of").unwrap();
        assert!(!first.gone(&unknown) && !first.lives(&unknown));
        assert!(first.lives(&a) && first.lives(&b));
        // What a kill leaves behind: the file, without its lock.
        std::fs::write(dir.path().join("killed"), "").unwrap();
        let killed = WorkerId::new("killed").unwrap();
        assert!(first.gone(&killed) && !first.lives(&killed));
    }

    #[test]
    fn an_id_that_leads_elsewhere_is_refused_and_nobody_known_to_be_gone() {
        let outside = tempfile::tempdir().unwrap();
        let dir = outside.path().join("workers");
        let watching = Liveness::announce(&dir, &WorkerId::new("a").unwrap()).unwrap();
        std::fs::write(outside.path().join("other"), "").unwrap();
        for id in ["../other", "..", ".", "b/c", "/etc/passwd", "a/"] {
            let id = WorkerId::new(id).unwrap();
            assert_eq!(Liveness::announce(&dir, &id).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{id}");
            assert!(!watching.gone(&id), "{id}");
        }
        Liveness::announce(&dir, &WorkerId::new("b..c").unwrap()).unwrap();
    }

    #[test]
    fn a_client_is_never_known_to_be_gone() {
        let dir = tempfile::tempdir().unwrap();
        let watching = Liveness::announce(dir.path(), &WorkerId::new("a").unwrap()).unwrap();
        let client = client(&Caller::new("team/agent-7").unwrap());
        assert_eq!(client.as_str(), "client:team_agent-7");
        std::fs::write(dir.path().join(client.as_str()), "").unwrap();
        assert!(!watching.gone(&client));
        assert!(Liveness::announce(dir.path(), &client).is_err());
        assert!(is_client(&super::client(&Caller::new(&"c".repeat(NAME_BYTES_MAX)).unwrap())));
    }

    #[test]
    fn a_worker_that_ends_with_an_open_claim_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b, c) = (WorkerId::new("a").unwrap(), WorkerId::new("b").unwrap(), WorkerId::new("c").unwrap());
        let watching = Liveness::announce(dir.path(), &a).unwrap();
        let tidy = Liveness::announce(dir.path(), &b).unwrap();
        tidy.claiming().settled();
        assert!(!watching.away(&b) && !watching.away(&a));
        drop(tidy);
        assert!(!dir.path().join("b").exists(), "nothing is left of it");
        assert!(watching.away(&b) && !watching.gone(&b));
        let broken = Liveness::announce(dir.path(), &c).unwrap();
        let _claim = broken.claiming();
        drop(broken);
        assert!(watching.gone(&c));
    }
}
