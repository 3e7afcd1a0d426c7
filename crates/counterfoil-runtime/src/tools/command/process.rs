//! A process group: started, fed, read, and ended as a whole.
//!
//! Must stay true: when the future that runs a command is dropped, every process of its group is killed, at once. A grandchild that outlives the
//! command and keeps its output open holds nobody up: after a short grace the group is killed and the command's own exit counts.
//! A process that leaves the group on purpose (setsid) is out of reach.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

use super::Output;
use crate::tool::Stop;
use crate::tools::output::DETAIL_BYTES_MAX;

/// How long the output may stay open after the command itself has ended.
const GRACE: Duration = Duration::from_millis(500);
const CHUNK_BYTES: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Finished {
    pub ended: Ended,
    pub stdout: Output,
    /// The last of it: that is where errors stand.
    pub stderr: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Exit(i32),
    Signal(i32),
    /// Somebody else took the exit status.
    Lost,
}

/// Runs the command to its end. An error: it was not started.
pub(super) async fn run(mut command: Command, stdin: String, kept_max: usize, stop: &Stop) -> std::io::Result<Finished> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    let mut child = command.spawn()?;
    let mut group = Group::of(&child);
    let (mut stdout, mut stderr) = (Output::new(kept_max), Tail::default());
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let ended = {
        let talk = async {
            let keep = |chunk: &[u8]| _ = stdout.push(chunk);
            tokio::join!(feed(pipes.0, stdin), drain(pipes.1, keep), drain(pipes.2, |chunk| stderr.push(chunk)));
        };
        tokio::pin!(talk);
        tokio::select! {
            // All said, and then waited for.
            () = &mut talk => {
                let ended = Ended::from(child.wait().await);
                group.let_go();
                ended
            }
            () = stop.asked() => {
                group.kill();
                let ended = Ended::from(child.wait().await);
                // All of it was killed. Now that the leader was waited for, its number may be another's.
                group.let_go();
                ended
            }
            status = child.wait() => {
                if tokio::time::timeout(GRACE, &mut talk).await.is_ok() {
                    group.let_go();
                }
                Ended::from(status)
            }
        }
    };
    Ok(Finished { ended, stdout, stderr: stderr.text() })
}

/// The processes of one command. Dropped while armed, it kills them all.
struct Group {
    leader: Option<Pid>,
}

impl Group {
    fn of(child: &Child) -> Self {
        Self { leader: child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) }
    }

    /// Once the leader was waited for and nobody of the group holds its pipes, its number may soon be another's.
    fn let_go(&mut self) {
        self.leader = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Group {
    fn kill(&mut self) {
        if let Some(leader) = self.leader {
            // Nobody left to kill is as good.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// A command need not read its input: one that closes it early is judged by its exit.
async fn feed(pipe: Option<ChildStdin>, text: String) {
    if let Some(mut pipe) = pipe {
        let _ = pipe.write_all(text.as_bytes()).await;
    }
}

/// Reads to the end, so that the command never blocks on a full pipe, however little of it is kept.
async fn drain(pipe: Option<impl AsyncRead + Unpin>, mut take: impl FnMut(&[u8])) {
    let Some(mut pipe) = pipe else { return };
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(read @ 1..) = pipe.read(&mut chunk).await {
        take(&chunk[..read]);
    }
}

/// The last bytes of a stream.
#[derive(Default)]
struct Tail(Vec<u8>);

impl Tail {
    fn push(&mut self, chunk: &[u8]) {
        self.0.extend_from_slice(chunk);
        let excess = self.0.len().saturating_sub(DETAIL_BYTES_MAX);
        self.0.drain(..excess);
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).trim_end().to_owned()
    }
}

impl From<std::io::Result<ExitStatus>> for Ended {
    fn from(status: std::io::Result<ExitStatus>) -> Self {
        match status.ok().map(|status| (status.code(), status.signal())) {
            Some((Some(code), _)) => Self::Exit(code),
            Some((None, Some(signal))) => Self::Signal(signal),
            _ => Self::Lost,
        }
    }
}
