//! Carries out a workload against the server in memory: interleaved by a seed, or by real threads.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use counterfoil_lin::recorder::Open;
use counterfoil_lin::workload::{Act, Disconnect, Step, Workload, said};
use counterfoil_lin::{Invocation, Limit, Operation, Recorder, Resource, Rng, Text, Verdict, check, invocation, resource};

use crate::server::{Ask, Fault, Job, Server, Told};

pub struct Histories {
    pub tools: Vec<Operation<resource::Op, resource::Ret>>,
    pub effects: Vec<Operation<invocation::Op, invocation::Ret>>,
}

impl Histories {
    /// The first that is not success.
    pub fn verdict(&self) -> Verdict {
        match check(&Resource::default(), &self.tools, Limit::default()) {
            Verdict::Linearizable => check(&Invocation::default(), &self.effects, Limit::default()),
            other => other,
        }
    }
}

#[derive(Default)]
struct Recorders {
    tools: Recorder<resource::Op, resource::Ret>,
    effects: Recorder<invocation::Op, invocation::Ret>,
}

enum Noted {
    Tool(Open<resource::Op, resource::Ret>),
    Effect(Open<invocation::Op, invocation::Ret>),
}

impl Noted {
    fn answered(self, told: Told) {
        match (self, told) {
            (Noted::Tool(open), Told::Tool(ret)) => open.answered(ret),
            (Noted::Effect(open), Told::Effect(ret)) => open.answered(ret),
            _ => panic!("an answer to another question"),
        }
    }
}

impl Recorders {
    fn begin(&self, client: u32, on: &Text, ask: &Ask) -> Noted {
        match ask.clone() {
            Ask::Tool(op) => Noted::Tool(self.tools.begin(client, on.clone(), op)),
            Ask::Effect(op) => Noted::Effect(self.effects.begin(client, on.clone(), op)),
        }
    }

    fn begun(&self) -> usize {
        self.tools.begun() + self.effects.begun()
    }

    /// Nothing is under way any more: each tool is read and each effect observed once more.
    fn finish(self, server: &mut Server, workload: &Workload) -> Histories {
        let reads = workload.resources.iter().map(|on| (on, Ask::Tool(resource::Op::Get)));
        let looks = workload.effects.iter().map(|on| (on, Ask::Effect(invocation::Op::Observe)));
        for (on, ask) in reads.chain(looks) {
            let noted = self.begin(workload.clients.len() as u32, on, &ask);
            noted.answered(server.advance(&mut Job::new(on.clone(), ask)).expect("both are answered at once"));
        }
        Histories { tools: self.tools.history(), effects: self.effects.history() }
    }
}

fn ask(server: &Server, step: &Step) -> Option<Ask> {
    match &step.act {
        Act::Resource(op) => Some(Ask::Tool(op.clone())),
        Act::Call { args } => Some(Ask::Effect(invocation::Op::Call { args: args.clone() })),
        Act::Settle if server.may_be_settled(&step.on) => Some(Ask::Effect(invocation::Op::Resolve(said(server.results(&step.on))))),
        Act::Settle => None,
    }
}

fn versions(workload: &Workload) -> Vec<(Text, Text)> {
    let version = |step: &Step| match &step.act {
        Act::Resource(resource::Op::Put { version, .. }) => Some((step.on.clone(), version.clone())),
        _ => None,
    };
    workload.clients.iter().flatten().filter_map(version).collect()
}

/// A request on its way. Without a client it goes on all the same.
struct Flight {
    client: usize,
    job: Job,
    noted: Option<Noted>,
    told: Option<Told>,
    disconnect: Option<Disconnect>,
}

/// The same workload and seed give the same histories.
pub fn interleaved(workload: &Workload, fault: Option<Fault>) -> Histories {
    let mut rng = Rng::new(!workload.seed);
    let mut server = Server::new(workload.seed ^ 0x5eed, fault, versions(workload));
    let recorders = Recorders::default();
    let mut scripts: Vec<VecDeque<Step>> = workload.clients.iter().map(|script| script.iter().cloned().collect()).collect();
    let mut kills: VecDeque<usize> = workload.kills.iter().copied().collect();
    let mut flights: Vec<Flight> = Vec::new();
    let mut busy = vec![false; scripts.len()];
    loop {
        if kills.front().is_some_and(|at| *at <= recorders.begun()) {
            kills.pop_front();
            server.kill();
            for flight in flights.drain(..).filter(|flight| flight.noted.is_some()) {
                busy[flight.client] = false;
            }
        }
        let idle: Vec<_> = (0..scripts.len()).filter(|client| !busy[*client] && !scripts[*client].is_empty()).collect();
        if idle.is_empty() && flights.is_empty() {
            return recorders.finish(&mut server, workload);
        }
        let choice = rng.below(idle.len() + flights.len());
        if let Some(client) = idle.get(choice).copied() {
            let step = scripts[client].pop_front().expect("idle clients have steps left");
            let Some(ask) = ask(&server, &step) else { continue };
            server.announce(&step.on, &ask);
            let noted = recorders.begin(client as u32, &step.on, &ask);
            // What is cut off by a disconnect is known to be; by a kill, the client sees it later. Either way it is sent again.
            if step.retries > 0 && (step.disconnect.is_some() || rng.percent(10)) {
                scripts[client].push_front(Step { retries: step.retries - 1, disconnect: None, ..step.clone() });
            }
            if step.disconnect == Some(Disconnect::MidRequest) {
                continue;
            }
            let present = step.disconnect != Some(Disconnect::AfterRequest);
            busy[client] = present;
            flights.push(Flight {
                client,
                job: Job::new(step.on, ask),
                noted: present.then_some(noted),
                told: None,
                disconnect: step.disconnect,
            });
            continue;
        }
        let index = choice - idle.len();
        let flight = &mut flights[index];
        if flight.told.is_none() {
            flight.told = server.advance(&mut flight.job);
            // An answer is one step, its arrival another: in between others may see what it speaks of.
            continue;
        }
        let Flight { client, noted, told, disconnect, .. } = flights.swap_remove(index);
        if let Some(noted) = noted {
            busy[client] = false;
            if disconnect.is_none() {
                noted.answered(told.expect("looked at above"));
            }
        }
    }
}

/// Real threads and a mutex; the operating system interleaves.
pub fn threaded(workload: &Workload) -> Histories {
    let recorders = Recorders::default();
    let shared = Mutex::new((Server::new(workload.seed, None, Vec::new()), 0));
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        for (client, script) in workload.clients.iter().enumerate() {
            let (recorders, lock) = (&recorders, &lock);
            scope.spawn(move || {
                for step in script {
                    for _ in 0..=step.retries {
                        let Some(ask) = ask(&lock().0, step) else { break };
                        let noted = recorders.begin(client as u32, &step.on, &ask);
                        let told = carry_out(Job::new(step.on.clone(), ask), recorders, workload, &lock);
                        match told {
                            Some(told) if step.disconnect.is_none() => {
                                noted.answered(told);
                                break;
                            }
                            _ => drop(noted),
                        }
                    }
                }
            });
        }
    });
    let (mut server, _) = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    recorders.finish(&mut server, workload)
}

/// `None`: the server was killed meanwhile. The counter beside the server is how often that happened.
fn carry_out<'a>(
    mut job: Job,
    recorders: &Recorders,
    workload: &Workload,
    lock: &impl Fn() -> std::sync::MutexGuard<'a, (Server, usize)>,
) -> Option<Told> {
    let sent = lock().1;
    loop {
        std::thread::yield_now();
        let mut guard = lock();
        let (server, killed) = &mut *guard;
        if workload.kills.get(*killed).is_some_and(|at| *at <= recorders.begun()) {
            server.kill();
            *killed += 1;
        }
        if *killed != sent {
            return None;
        }
        if let Some(told) = server.advance(&mut job) {
            return Some(told);
        }
    }
}
