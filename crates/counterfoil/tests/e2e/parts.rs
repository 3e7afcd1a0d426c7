//! Processes that the tests start are this same test binary, told by a variable which part to play.
//!
//! No second binary has to be built, found or shipped. A part talks to its test in lines that begin with `@`: the harness writes lines as well.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const PART: &str = "COUNTERFOIL_E2E_PART";

#[test]
#[ignore = "plays a part that another test started it for"]
fn play() {
    let part = std::env::var(PART).unwrap_or_default();
    let words: Vec<&str> = part.split(' ').collect();
    match words[..] {
        ["world", port] => {
            end_with_the_test();
            super::world::serve(port.parse().expect("a port"));
        }
        ["worker"] => {
            end_with_the_test();
            super::worker::work();
        }
        ["caller"] => super::worker::one_call(),
        _ => {}
    }
}

/// A test that is itself killed cannot tidy up: its end of the pipe closes, and the part goes too.
fn end_with_the_test() {
    std::thread::spawn(|| {
        drop(std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        std::process::exit(0);
    });
}

/// A line from a part to its test.
pub fn say(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "@{line}").and_then(|()| out.flush()).expect("the test is listening");
}

/// A process that is killed and reaped when the test ends, however it ends.
pub struct Process {
    pub child: Child,
}

impl Process {
    pub fn spawn(command: &mut Command) -> Self {
        Self { child: command.spawn().expect("it can be started") }
    }

    pub fn kill(&mut self) {
        // Already gone is as good.
        drop(self.child.kill());
        self.child.wait().expect("it can be waited for");
        crate::clock::swept(self.child.id());
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("it is alive");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A part, and what it says.
pub struct Part {
    pub process: Process,
    pub stdin: Option<ChildStdin>,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Part {
    pub fn start(part: &str, env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("a running binary"));
        command.args(["--exact", "parts::play", "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(PART, part).envs(env.iter().copied());
        let mut process = Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()));
        let lines = BufReader::new(process.child.stdout.take().expect("piped")).lines();
        let stdin = process.child.stdin.take();
        Self { process, stdin, lines }
    }

    /// The next thing it says. `None`: it ended. A line that was cut off by its death is nothing it said.
    pub fn hear(&mut self) -> Option<String> {
        loop {
            let line = self.lines.next()?.ok()?;
            if let Some((_, said)) = line.split_once('@') {
                return Some(said.to_owned());
            }
        }
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().expect("piped"), "{line}").expect("it listens");
    }
}
