//! A wall clock that a test sets, steps and lets drift, for processes that are started with its environment.
//!
//! libfaketime stands between those processes and the time of day; their monotonic clock, like the kernel's, is nobody's to set. The time is in a file that is
//! replaced as a whole and read at each look, so that a change holds at once. Without the library there is nothing to show, and the test fails.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How often a drifting clock is moved on.
const TICK: Duration = Duration::from_millis(2);

pub struct Clock {
    dir: TempDir,
    /// How far it is ahead, in seconds.
    ahead: Mutex<f64>,
}

/// A clock drifts as long as this lives.
pub struct Drifting {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Clock {
    pub fn ahead_by(seconds: f64) -> Arc<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        // A database that is another user's reads it too.
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("our directory");
        let clock = Arc::new(Self { dir, ahead: Mutex::new(0.0) });
        clock.set(seconds);
        clock
    }

    pub fn set(&self, seconds: f64) {
        let mut ahead = self.ahead.lock().expect("no panic");
        *ahead = seconds;
        let (new, file) = (self.dir.path().join("new"), self.dir.path().join("ahead"));
        std::fs::write(&new, format!("{seconds:+.3}\n")).and_then(|()| std::fs::rename(new, file)).expect("the clock is set");
    }

    pub fn ahead(&self) -> f64 {
        *self.ahead.lock().expect("no panic")
    }

    /// So many seconds in one, and never past the right time.
    pub fn drift(self: &Arc<Self>, rate: f64) -> Drifting {
        let (clock, over) = (self.clone(), Arc::new(AtomicBool::new(false)));
        let (start, since, end) = (self.ahead(), Instant::now(), over.clone());
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::SeqCst) {
                clock.set((start + (rate - 1.0) * since.elapsed().as_secs_f64()).min(0.0));
                std::thread::sleep(TICK);
            }
        });
        Drifting { over, thread: Some(thread) }
    }

    /// For a process that shall live by it.
    pub fn env(&self) -> Vec<(String, String)> {
        let file = self.dir.path().join("ahead").display().to_string();
        // An allocator of another library's asks for the time before libfaketime is ready for it, and waits for ever: the C library's own comes first.
        let library = format!("{} libc.so.6", library().display());
        let env = [
            ("LD_PRELOAD", library.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", &file),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
        ];
        env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }
}

impl Drop for Drifting {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
    }
}

/// A process that is killed leaves behind what libfaketime shares among its children; another with its number would stumble over it.
pub fn swept(pid: u32) {
    for name in [format!("faketime_shm_{pid}"), format!("sem.faketime_sem_{pid}")] {
        drop(std::fs::remove_file(PathBuf::from("/dev/shm").join(name)));
    }
}

fn library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = folders.chain(["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from));
    let mut found = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).filter(|path| path.is_file());
    found.next().expect("libfaketimeMT.so.1 was not found: these tests set clocks; install Debian's package `libfaketime`")
}
