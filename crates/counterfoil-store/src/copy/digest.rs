//! One value for all records in their order, the same in every store that holds the same.

use counterfoil_core::ids::Digest32;
use counterfoil_core::{RunId, Timestamp, ToolName};

use crate::Recorded;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    pub records: u64,
    pub value: Digest32,
}

impl Default for Digest {
    fn default() -> Self {
        Self { records: 0, value: Digest32([0; 32]) }
    }
}

impl Digest {
    /// Everything but the position, which is each store's own.
    pub fn add(&mut self, Recorded { stream, summary, record }: &Recorded) {
        let time = |at: Option<Timestamp>| at.map_or_else(Vec::new, |at| at.0.to_be_bytes().to_vec());
        self.records += 1;
        self.value = Digest32::of_fields(
            "counterfoil/ledger/1",
            &[
                &self.value.0,
                &stream.0,
                &record.version.0.to_be_bytes(),
                &record.at.0.to_be_bytes(),
                record.body.as_bytes(),
                &[summary.kind as u8, u8::from(summary.open)],
                summary.tenant.as_str().as_bytes(),
                summary.state.as_bytes(),
                summary.tool.as_ref().map_or("", ToolName::as_str).as_bytes(),
                summary.run.as_ref().map_or("", RunId::as_str).as_bytes(),
                &time(summary.due),
                &time(summary.expires),
            ],
        );
    }
}
