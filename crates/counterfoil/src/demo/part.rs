//! A child process of the demo: this program again, in another part.
//!
//! It hears of its parent's end, however that comes, because its stdin closes; and it is killed when its `Part` is dropped.

use std::io::Read;
use std::process::Stdio;

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::agent::Told;

pub struct Part {
    name: &'static str,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Part {
    pub fn start(name: &'static str, args: &[&std::ffi::OsStr]) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program cannot find itself")?;
        let mut command = Command::new(program);
        command.args(["demo", "--part", name]).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("the {name} cannot be started"))?;
        let stdout = child.stdout.take().context("a piped stdout is there")?;
        Ok(Self { name, child, lines: BufReader::new(stdout).lines() })
    }

    pub fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    pub async fn line(&mut self) -> anyhow::Result<String> {
        match self.lines.next_line().await? {
            Some(line) => Ok(line),
            None => bail!("the {} ended too early ({})", self.name, self.child.wait().await?),
        }
    }

    /// The next thing a worker tells.
    pub async fn told(&mut self) -> anyhow::Result<Told> {
        let line = self.line().await?;
        serde_json::from_str(&line).with_context(|| format!("the {} said {line:?}, which means nothing", self.name))
    }

    /// SIGKILL: it gets no chance to write anything down. Returns when it is dead.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.with_context(|| format!("the {} could not be killed", self.name))
    }

    /// Waits for a worker that has told everything.
    pub async fn finish(mut self) -> anyhow::Result<()> {
        // Open until it has ended: a closed one would end it.
        let _stdin = self.child.stdin.take();
        self.ended().await
    }

    /// Tells it that nothing more is wanted, and waits until it has ended.
    pub async fn dismiss(mut self) -> anyhow::Result<()> {
        drop(self.child.stdin.take());
        self.ended().await
    }

    async fn ended(&mut self) -> anyhow::Result<()> {
        let status = self.child.wait().await?;
        if !status.success() {
            bail!("the {} failed ({status})", self.name);
        }
        Ok(())
    }
}

/// In the child: ends the process when its parent is gone. A thread of its own, so that nothing can hold it up.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let mut stdin = std::io::stdin().lock();
        let mut bytes = [0; 64];
        while stdin.read(&mut bytes).is_ok_and(|n| n > 0) {}
        std::process::exit(0);
    });
}
