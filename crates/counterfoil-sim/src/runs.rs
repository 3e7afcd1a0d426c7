//! The workflows that runs go by, and what the checker knows of them: which step comes after which, and what is undone.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use counterfoil_runtime::workflow::Workflow;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Script {
    /// One after another.
    Saga,
    /// Side by side, then one after another.
    Branches,
    /// A part that may fail and is then undone alone.
    Scope,
    /// Waits for a signal, and sleeps.
    Waits,
}

pub struct Step {
    pub id: &'static str,
    /// A run that completed has done it.
    pub needed: bool,
    pub undo: bool,
    /// Done before this one is begun.
    pub after: &'static [&'static str],
}

const fn step(id: &'static str, needed: bool, undo: bool, after: &'static [&'static str]) -> Step {
    Step { id, needed, undo, after }
}

const SAGA: &[Step] = &[
    step("a", true, true, &[]),
    step("b", true, true, &["a"]),
    step("c", true, false, &["b"]),
    step("d", true, false, &["c"]),
    step("e", false, false, &["d"]),
];
const BRANCHES: &[Step] = &[
    step("a", true, true, &[]),
    step("b", true, false, &["a"]),
    step("c", true, true, &[]),
    step("d", true, false, &["b", "c"]),
    step("e", false, false, &["d"]),
];
const SCOPE: &[Step] = &[
    step("a", true, true, &[]),
    step("b", false, true, &["a"]),
    step("c", false, false, &["b"]),
    step("d", true, false, &["a"]),
    step("e", false, false, &["d"]),
];
const WAITS: &[Step] =
    &[step("a", true, true, &[]), step("b", true, false, &["a"]), step("d", true, false, &["b"]), step("e", false, false, &["d"])];

impl Script {
    pub const ALL: [Self; 4] = [Self::Saga, Self::Branches, Self::Scope, Self::Waits];

    /// Of a run: the first letter of its id says which.
    pub fn of(run: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|script| run.starts_with(script.letter()) && run[1..].parse::<u32>().is_ok())
    }

    pub fn letter(self) -> char {
        match self {
            Self::Saga => 's',
            Self::Branches => 'p',
            Self::Scope => 'o',
            Self::Waits => 'w',
        }
    }

    pub fn steps(self) -> &'static [Step] {
        match self {
            Self::Saga => SAGA,
            Self::Branches => BRANCHES,
            Self::Scope => SCOPE,
            Self::Waits => WAITS,
        }
    }

    pub fn step(self, id: &str) -> Option<&'static Step> {
        self.steps().iter().find(|step| step.id == id)
    }

    /// Steps with an undo of which the second was done after the first: undone the other way round.
    pub fn pairs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Saga | Self::Scope => &[("a", "b")],
            Self::Branches | Self::Waits => &[],
        }
    }

    /// A step that is undone alone, and the step whose failure does it.
    pub fn scope(self) -> Option<(&'static str, &'static str)> {
        (self == Self::Scope).then_some(("b", "c"))
    }

    pub fn waits(self) -> bool {
        self == Self::Waits
    }

    fn text(self, changed: bool) -> String {
        let call = |id: &str, tool: &str| format!(r#"{{ id: {id}, tool: {tool}, args: {{ t: "${{input.r}}.{id}" }} }}"#);
        let book = |id: &str| {
            let undo = r#"undo: { tool: unbook, args: { t: "${args.t}.undo" }, retry: { attempts: 3, first: 50ms, max: 200ms } }"#;
            format!(r#"{{ id: {id}, tool: book, args: {{ t: "${{input.r}}.{id}" }}, {undo} }}"#)
        };
        let name = format!("{self:?}").to_lowercase();
        let mut steps = match self {
            Self::Saga => vec![book("a"), book("b"), call("c", "pay"), call("d", "send")],
            Self::Branches => {
                let branches = format!("[[{}, {}], [{}]]", book("a"), call("b", "send"), book("c"));
                vec![format!("{{ id: p, parallel: {{ branches: {branches} }} }}"), call("d", "pay")]
            }
            Self::Scope => {
                let inside = format!("{{ steps: [{}, {}] }}", book("b"), call("c", "pay"));
                vec![book("a"), format!("{{ id: try, on_failure: continue, scope: {inside} }}"), call("d", "send")]
            }
            Self::Waits => vec![
                book("a"),
                "{ id: s, wait: { signal: go } }".to_owned(),
                call("b", "send"),
                "{ id: z, sleep: 3s }".to_owned(),
                call("d", "pay"),
            ],
        };
        if changed {
            steps.push(call("e", "send"));
        }
        let steps: Vec<String> = steps.iter().map(|step| format!("  - {step}\n")).collect();
        format!("workflow: {name}\nsteps:\n{}", steps.concat())
    }

    /// Read once per thread: that takes longer than a run does.
    pub fn workflow(self, changed: bool) -> Arc<Workflow> {
        thread_local! {
            static READ: RefCell<BTreeMap<(Script, bool), Arc<Workflow>>> = const { RefCell::new(BTreeMap::new()) };
        }
        READ.with_borrow_mut(|read| {
            let read_now = || Arc::new(Workflow::parse(&self.text(changed), "sim.yaml").unwrap_or_else(|errors| panic!("{errors}")));
            read.entry((self, changed)).or_insert_with(read_now).clone()
        })
    }
}
