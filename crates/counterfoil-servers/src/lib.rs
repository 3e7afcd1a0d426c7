//! Database servers that a test starts for itself: on a free port, in a folder that goes away, ended by their process id.
//!
//! For tests alone. Nothing here relies on a server that happens to run, and none outlives the value that started it.

pub mod postgres;
pub mod redis;

use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Far beyond what any command of a test takes, on a machine under load.
const HANGS: Duration = Duration::from_secs(300);

/// What a command said. One that hangs is ended: a failure with a name, not a night of waiting.
pub fn in_time(command: &mut Command) -> std::io::Result<Output> {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let pid = Pid::from_child(&child);
    let (ended, waiting) = channel::<()>();
    let watch = std::thread::spawn(move || {
        let hangs = waiting.recv_timeout(HANGS) == Err(RecvTimeoutError::Timeout);
        if hangs && let Err(error) = kill_process(pid, Signal::KILL) {
            eprintln!("{pid:?} hangs and cannot be ended: {error}");
        }
        hangs
    });
    let output = child.wait_with_output();
    drop(ended);
    let hung = watch.join().expect("it only waits");
    assert!(!hung, "hangs for {HANGS:?}: {command:?}: {output:?}");
    output
}

/// Where a server lives, and in what environment.
pub struct Home {
    pub dir: TempDir,
    pub env: Vec<(String, String)>,
}

impl Default for Home {
    fn default() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory"), env: Vec::new() }
    }
}
