//! The lines of an archive: gzip, inside it one JSON object per line, so that `zcat FILE | jq` reads it.
//!
//! `archive` comes first, then for each run `run`, its `record`s in the order of the ledger, and `run_end`; `end` comes last. Digests are chained over the
//! lines: D(line) = F("counterfoil/archive/1", D(the line before), the line's text). `run_end` has the digest of the run's lines, which starts anew with each
//! run; `end` has that of all `archive` and `run_end` lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use counterfoil_core::ids::{Digest32, WorkflowName};
use counterfoil_core::summary::StreamKind;
use counterfoil_core::{RunId, StreamId, Tenant, Timestamp};
use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Only this one is read.
const FORMAT: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Archive(Header),
    Run(RunHead),
    Record(Box<Kept>),
    RunEnd(RunFoot),
    End(Foot),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    pub format: u32,
    pub tenant: Tenant,
    /// The runs in it ended before this.
    pub before: Timestamp,
    pub made: Timestamp,
}

impl Header {
    pub fn new(tenant: Tenant, before: Timestamp, made: Timestamp) -> Self {
        Self { format: FORMAT, tenant, before, made }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunHead {
    pub run: RunId,
    pub workflow: WorkflowName,
    pub state: String,
    pub ended: Timestamp,
}

/// A record as the ledger had it. Its summary follows from the records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    pub stream: Digest32,
    pub kind: u8,
    pub version: u64,
    pub position: u64,
    pub at: Timestamp,
    pub body: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunFoot {
    records: u64,
    digest: Digest32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Foot {
    runs: u64,
    records: u64,
    digest: Digest32,
}

/// What is wrong with an archive, and in which line of what `zcat` prints.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {what}")]
pub struct Damage {
    pub line: u64,
    pub what: String,
}

/// A run as the archive has it.
#[derive(Debug, Clone)]
pub struct KeptRun {
    pub head: RunHead,
    pub digest: Digest32,
    /// In the order of the ledger.
    pub records: Vec<Kept>,
    /// Of its first line.
    pub line: u64,
}

fn chained(before: Digest32, text: &str) -> Digest32 {
    Digest32::of_fields("counterfoil/archive/1", &[&before.0, text.as_bytes()])
}

const START: Digest32 = Digest32([0; 32]);

pub struct Writer {
    out: GzEncoder<io::BufWriter<File>>,
    all: Digest32,
    runs: u64,
    records: u64,
}

impl Writer {
    pub fn new(file: File, header: &Header) -> io::Result<Self> {
        let mut writer = Self { out: GzEncoder::new(io::BufWriter::new(file), Compression::default()), all: START, runs: 0, records: 0 };
        let text = writer.line(&Line::Archive(header.clone()))?;
        writer.all = chained(writer.all, &text);
        Ok(writer)
    }

    pub fn run(&mut self, head: &RunHead, records: &[Kept]) -> io::Result<()> {
        let mut digest = chained(START, &self.line(&Line::Run(head.clone()))?);
        for kept in records {
            digest = chained(digest, &self.line(&Line::Record(Box::new(kept.clone())))?);
        }
        let text = self.line(&Line::RunEnd(RunFoot { records: records.len() as u64, digest }))?;
        self.all = chained(self.all, &text);
        self.runs += 1;
        self.records += records.len() as u64;
        Ok(())
    }

    /// Durable when this returns.
    pub fn end(mut self) -> io::Result<()> {
        let foot = Foot { runs: self.runs, records: self.records, digest: self.all };
        self.line(&Line::End(foot))?;
        let file = self.out.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()
    }

    fn line(&mut self, line: &Line) -> io::Result<String> {
        let text = serde_json::to_string(line)?;
        self.out.write_all(text.as_bytes())?;
        self.out.write_all(b"\n")?;
        Ok(text)
    }
}

impl Kept {
    pub fn stream(&self) -> StreamId {
        StreamId(self.stream.0)
    }

    pub fn kind(&self) -> Option<StreamKind> {
        StreamKind::from_code(self.kind)
    }
}

/// Gives one run after the other, each checked against its digest. Holds one at a time.
pub struct Reader {
    lines: io::Lines<BufReader<MultiGzDecoder<BufReader<File>>>>,
    pub header: Header,
    line: u64,
    all: Digest32,
    runs: u64,
    records: u64,
    ended: bool,
}

impl Reader {
    pub fn open(path: &Path) -> io::Result<Result<Self, Damage>> {
        let file = BufReader::new(File::open(path)?);
        let mut lines = BufReader::new(MultiGzDecoder::new(file)).lines();
        let first = match lines.next() {
            Some(Ok(first)) => first,
            Some(Err(error)) => return Ok(Err(Damage { line: 1, what: format!("this is not an archive of runs: {error}") })),
            None => return Ok(Err(Damage { line: 1, what: "the file is empty".into() })),
        };
        let header = match serde_json::from_str(&first) {
            Ok(Line::Archive(header)) if header.format == FORMAT => header,
            Ok(Line::Archive(header)) => {
                let what = format!("the archive has format {}, and this version reads {FORMAT}", header.format);
                return Ok(Err(Damage { line: 1, what }));
            }
            Ok(_) | Err(_) => return Ok(Err(Damage { line: 1, what: "this is not an archive of runs: its first line is another".into() })),
        };
        let all = chained(START, &first);
        Ok(Ok(Self { lines, header, line: 1, all, runs: 0, records: 0, ended: false }))
    }

    pub fn runs(&self) -> u64 {
        self.runs
    }

    pub fn records(&self) -> u64 {
        self.records
    }

    /// Over all of it, once it was read.
    pub fn digest(&self) -> Digest32 {
        self.all
    }

    /// `None`: it was read to its end, and is whole.
    pub fn next_run(&mut self) -> Result<Option<KeptRun>, Damage> {
        if self.ended {
            return Ok(None);
        }
        let (text, line) = self.take()?;
        let head = match line {
            Line::Run(head) => head,
            Line::End(foot) => return self.foot(&foot).map(|()| None),
            _ => return Err(self.damage("a run must begin here")),
        };
        let (mut digest, first) = (chained(START, &text), self.line);
        let mut records = Vec::new();
        loop {
            let (text, line) = self.take()?;
            match line {
                Line::Record(kept) => {
                    digest = chained(digest, &text);
                    if kept.kind().is_none() {
                        return Err(self.damage(format!("there is no kind {} of stream", kept.kind)));
                    }
                    records.push(*kept);
                }
                Line::RunEnd(foot) => {
                    if foot.records != records.len() as u64 {
                        let what = format!("the run {} had {} records, and {} are here", head.run, foot.records, records.len());
                        return Err(self.damage(what));
                    }
                    if foot.digest != digest {
                        let what = format!(
                            "the run {} is not what was archived: the digest of lines {first} to {} is {digest}, and was {}",
                            head.run,
                            self.line - 1,
                            foot.digest
                        );
                        return Err(self.damage(what));
                    }
                    self.all = chained(self.all, &text);
                    self.runs += 1;
                    self.records += records.len() as u64;
                    return Ok(Some(KeptRun { head, digest, records, line: first }));
                }
                _ => return Err(self.damage(format!("a record of the run {} must be here", head.run))),
            }
        }
    }

    fn foot(&mut self, foot: &Foot) -> Result<(), Damage> {
        let found = Foot { runs: self.runs, records: self.records, digest: self.all };
        if *foot != found {
            let what = format!(
                "the archive had {} runs with digest {}, and {} with {} are here",
                foot.runs, foot.digest, found.runs, found.digest
            );
            return Err(self.damage(what));
        }
        self.ended = true;
        match self.lines.next() {
            None => Ok(()),
            Some(_) => {
                self.line += 1;
                Err(self.damage("something follows the end"))
            }
        }
    }

    fn take(&mut self) -> Result<(String, Line), Damage> {
        self.line += 1;
        let text = match self.lines.next() {
            Some(Ok(text)) => text,
            Some(Err(error)) => return Err(self.damage(format!("it cannot be read from here on: {error}"))),
            None => return Err(self.damage("the file ends before its last line")),
        };
        let line = serde_json::from_str(&text).map_err(|error| self.damage(format!("it cannot be read: {error}")))?;
        Ok((text, line))
    }

    fn damage(&self, what: impl Into<String>) -> Damage {
        Damage { line: self.line, what: what.into() }
    }
}
