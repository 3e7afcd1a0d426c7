//! The tools of the simulated world: what each is declared as, and the real `Tool` by which a process reaches it.
//!
//! Declarations are true: what may not be repeated acts once more when it is repeated, what is keyed honours the key. Times are short, so that leases
//! run out and retries end within a few simulated seconds.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::ids::Digest32;
use counterfoil_core::policy::{BreakerPolicy, Repeat, RetryPolicy};
use counterfoil_core::{CanonicalJson, EffectClass, Failure, Json, Outcome, Policy, ToolName};
use counterfoil_runtime::tool::ToolFuture;
use counterfoil_runtime::{Invocation, ProbeAnswer, Registered, Runtime, Tool, UndoPlan};

use crate::bugs::Bug;
use crate::state::{Hub, Life};
use crate::world::Said;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// May not be repeated, and nobody can be asked about it.
    Pay,
    /// May not be repeated; has a probe and an undo.
    Book,
    /// The undo of `Book`: may not be repeated, has a probe.
    Unbook,
    /// The other side honours the key.
    Send,
    /// Twice is the same as once.
    Set,
    /// Only reads.
    Look,
    /// Like `Book`, and soon forgotten.
    Note,
    /// A person must agree first.
    Ask,
}

pub const TIMEOUT: Duration = Duration::from_secs(1);
pub const LEASE: Duration = Duration::from_secs(3);
pub const RETAIN_BRIEF: Duration = Duration::from_secs(6);

impl Kind {
    pub const ALL: [Self; 8] = [Self::Pay, Self::Book, Self::Unbook, Self::Send, Self::Set, Self::Look, Self::Note, Self::Ask];
    /// What callers ask for by themselves.
    pub const ASKED: [Self; 7] = [Self::Pay, Self::Book, Self::Send, Self::Set, Self::Look, Self::Note, Self::Ask];

    pub fn name(self) -> ToolName {
        let name = match self {
            Self::Pay => "pay",
            Self::Book => "book",
            Self::Unbook => "unbook",
            Self::Send => "send",
            Self::Set => "set",
            Self::Look => "look",
            Self::Note => "note",
            Self::Ask => "ask",
        };
        ToolName::new(name).expect("a plain word")
    }

    pub fn named(name: &ToolName) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == *name)
    }

    /// A second act would be a second effect.
    pub fn is_once(self) -> bool {
        matches!(self, Self::Pay | Self::Book | Self::Unbook | Self::Note | Self::Ask)
    }

    pub fn has_probe(self) -> bool {
        matches!(self, Self::Book | Self::Unbook | Self::Note)
    }

    pub fn changes_the_world(self) -> bool {
        self != Self::Look
    }

    pub fn policy(self) -> Policy {
        Policy {
            effect: if self == Self::Look { EffectClass::Read } else { EffectClass::Write },
            repeat: match self {
                Self::Send => Repeat::Keyed,
                Self::Set => Repeat::Safe,
                _ => Repeat::Never,
            },
            timeout: TIMEOUT,
            deadline: Duration::from_secs(5),
            lease: LEASE,
            wait_max: Duration::from_secs(2),
            retry: RetryPolicy { attempts: 3, first: Duration::from_millis(50), max: Duration::from_millis(400), ..RetryPolicy::default() },
            breaker: BreakerPolicy { consecutive: 4, reset: Duration::from_secs(3), ..BreakerPolicy::default() },
            retain: if self == Self::Note { RETAIN_BRIEF } else { Duration::from_secs(24 * 3600) },
            approval_expires: Duration::from_secs(30),
            ..Policy::default()
        }
    }
}

/// Registers every tool with a process.
pub fn register(runtime: &Runtime, hub: &Arc<Hub>, life: Life) {
    for kind in Kind::ALL {
        let tool = Arc::new(SimTool { hub: hub.clone(), life, kind });
        let mut registered = Registered::new(kind.name(), tool, kind.policy());
        if kind == Kind::Ask {
            registered.approval = Some(Arc::new(|_| Ok(true)));
        }
        runtime.register(registered);
    }
}

struct SimTool {
    hub: Arc<Hub>,
    life: Life,
    kind: Kind,
}

impl SimTool {
    /// One request, and what comes of it.
    async fn request(&self, invocation: &Invocation) -> Outcome {
        let (id, mut said) = self.hub.lock().request(self.life, self.kind, invocation);
        let first = tokio::select! {
            biased;
            said = &mut said => Some(said),
            () = invocation.stop.asked() => None,
        };
        let said = match first {
            Some(said) => said,
            None if self.hub.lock().withdraw(id) => return Outcome::NotDone(Failure::new("stopped", "it stopped before it acted")),
            None => said.await,
        };
        match said {
            Ok(Said::Answer(outcome)) => outcome,
            // Not through the panic hook: nobody needs to read of it.
            Ok(Said::Panic) => std::panic::resume_unwind(Box::new("a tool that panics")),
            Err(_) => std::future::pending().await,
        }
    }

    /// The same by a tool that is not as it should be.
    async fn broken(&self, bug: Bug, mut invocation: Invocation) -> Outcome {
        match bug {
            Bug::AttemptInKey => {
                invocation.key = Digest32::of_fields("sim/attempt", &[&invocation.key.0, &invocation.attempt.to_be_bytes()]);
                self.request(&invocation).await
            }
            Bug::RetryOfUnknown => match tokio::time::timeout(TIMEOUT / 2, self.request(&invocation)).await {
                Ok(Outcome::Unknown(failure)) => Outcome::NotDone(failure),
                Ok(outcome) => outcome,
                Err(_) => Outcome::NotDone(Failure::of_dependency("timeout", "no answer")),
            },
            Bug::EmptyResultAsNone => match self.request(&invocation).await {
                Outcome::Done(success) if is_empty(&success.result) => {
                    Outcome::NotDone(Failure::of_dependency("no_result", "nothing came back"))
                }
                outcome => outcome,
            },
            Bug::BreakerOutsideRetry => {
                let outcome = self.request(&invocation).await;
                match &outcome {
                    Outcome::NotDone(failure) if failure.retriable => self.request(&invocation).await,
                    _ => outcome,
                }
            }
            Bug::UndoMarkedBeforeRun if self.kind == Kind::Unbook => {
                let (hub, life, kind) = (self.hub.clone(), self.life, self.kind);
                tokio::spawn(async move {
                    tokio::time::sleep(TIMEOUT / 2).await;
                    Self { hub, life, kind }.request(&invocation).await
                });
                Outcome::Done(counterfoil_core::Success::new(Json::null()))
            }
            _ => self.request(&invocation).await,
        }
    }
}

/// Results that are easily taken for none.
pub fn is_empty(result: &Json) -> bool {
    matches!(result.as_str(), "null" | "false" | "0" | "\"\"" | "[]" | "{}")
}

impl Tool for SimTool {
    fn invoke(&self, invocation: Invocation) -> ToolFuture<'_, Outcome> {
        let bug = self.hub.lock().bug;
        match bug {
            None => Box::pin(async move { self.request(&invocation).await }),
            Some(bug) => Box::pin(self.broken(bug, invocation)),
        }
    }

    fn can_probe(&self) -> bool {
        self.kind.has_probe()
    }

    fn probe(&self, invocation: Invocation) -> ToolFuture<'_, ProbeAnswer> {
        let reply = self.hub.lock().probe(self.life, self.kind, &invocation);
        Box::pin(reply.heard())
    }

    fn undo_plan(&self, invocation: &Invocation, _result: &Json) -> Result<Option<UndoPlan>, String> {
        if self.kind != Kind::Book {
            return Ok(None);
        }
        let args = serde_json::json!({ "t": format!("{}.undo", token_of(&invocation.args)) });
        let args = CanonicalJson::from_value(&args).map_err(|error| error.to_string())?;
        Ok(Some(UndoPlan { tool: Kind::Unbook.name(), args }))
    }
}

/// What tells one thing to be done from another, whatever key it goes by.
pub fn token_of(args: &CanonicalJson) -> String {
    args.to_value()["t"].as_str().unwrap_or_default().to_owned()
}
