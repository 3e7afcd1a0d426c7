//! Workflows that run again and again: at most one run per tick, whoever looks and whoever dies, counted in the world.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::ids::{ScheduleName, WorkflowName};
use counterfoil_core::run::schedule::{Became, CatchUp, Overlap, Schedule, Terms};
use counterfoil_core::{CanonicalJson, RunId, Timestamp};
use counterfoil_runtime::engine::RunError;
use counterfoil_runtime::engine::operate::Heard;
use counterfoil_runtime::engine::schedules::Word;
use counterfoil_runtime::{Clock, Operator};

use crate::house::{Death, House, Town, tenant, workflow};

const REPORT: &str = r#"
workflow: report
input: { type: object, required: [do], properties: { do: { type: string } } }
steps:
  - { id: send, tool: act, args: { do: "${input.do}", what: "${run.id}" } }
"#;

const MINUTE: Duration = Duration::from_secs(60);

fn name() -> ScheduleName {
    ScheduleName::new("nightly").unwrap()
}

fn terms() -> Terms {
    Terms {
        workflow: WorkflowName::new("report").unwrap(),
        cron: "*/10 * * * *".into(),
        zone: "UTC".into(),
        input: CanonicalJson::parse(r#"{"do":"ok","tick":"${schedule.tick}"}"#).unwrap(),
        catch_up: CatchUp::Last,
        within_ms: None,
        overlap: Overlap::Skip,
    }
}

impl House {
    async fn put(&self, terms: &Terms) -> Schedule {
        self.runtime.put_workflow(&tenant(), &Arc::new(workflow(REPORT)), "ada").await.unwrap();
        self.runtime.put_schedule(&tenant(), &name(), terms, "ada").await.unwrap().1
    }

    async fn refused(&self, terms: Terms) -> RunError {
        self.runtime.put_schedule(&tenant(), &name(), &terms, "ada").await.unwrap_err()
    }

    async fn known(&self) -> Schedule {
        self.runtime.schedule(&tenant(), &name()).await.unwrap()
    }

    /// Moves the clock to just after the tick that is next, and so many further ones, ten minutes apart.
    async fn to_tick(&self, further: u32) {
        let next = self.known().await.next.unwrap() + MINUTE * 10 * further;
        self.town.clock.advance(next.since(self.town.clock.now()) + Duration::from_millis(1));
    }

    /// Deals with what is due and sees the runs to their end, as `counterfoil recover` does.
    async fn work(&self) -> Vec<Became> {
        let dealt = self.runtime.tick_due().await.unwrap();
        self.runtime.drive_due().await.unwrap();
        dealt.into_iter().map(|one| one.ticked.what).collect()
    }

    fn sent(&self) -> Vec<String> {
        self.world().log()
    }
}

fn run_at(tick: Timestamp) -> RunId {
    RunId::new(&format!("nightly@{}", counterfoil_runtime::shown::second(tick))).unwrap()
}

#[tokio::test]
async fn each_tick_has_one_run_and_the_run_knows_its_tick() {
    let house = Town::default().process();
    let put = house.put(&terms()).await;
    assert!(house.work().await.is_empty(), "it is not due");
    let mut expected = Vec::new();
    for _ in 0..3 {
        let tick = house.known().await.next.unwrap();
        house.to_tick(0).await;
        assert_eq!(house.work().await, [Became::Started { run: run_at(tick) }]);
        assert!(house.work().await.is_empty(), "nothing is left of it");
        let view = house.view(&run_at(tick)).await;
        assert_eq!((view.state, view.input.to_value()["tick"].as_str()), ("completed", Some(&*counterfoil_runtime::shown::second(tick))));
        expected.push(format!("act {}", run_at(tick)));
    }
    assert_eq!((house.sent(), house.known().await.runs), (expected, 3));
    assert_eq!(house.runtime.put_schedule(&tenant(), &name(), &put.terms, "bob").await.unwrap().0, Heard::Before);
}

#[tokio::test]
async fn many_workers_at_one_tick_start_one_run() {
    let town = Town::default();
    let first = town.process();
    first.put(&terms()).await;
    for round in 1..=5 {
        first.to_tick(0).await;
        let workers: Vec<_> = (0..10).map(|_| town.process()).collect();
        let looked = workers.iter().map(|worker| worker.work());
        let started: usize = futures_util::future::join_all(looked).await.iter().map(Vec::len).sum();
        assert_eq!((started, first.sent().len()), (1, round));
    }
}

#[tokio::test]
async fn missed_ticks_are_caught_up_with_as_the_terms_say() {
    for (catch_up, overlap, runs) in [
        (CatchUp::Last, Overlap::Skip, 1),
        (CatchUp::None, Overlap::Skip, 1),
        (CatchUp::All, Overlap::Allow, 5),
        (CatchUp::All, Overlap::Wait, 5),
    ] {
        let house = Town::default().process();
        let first = house.put(&Terms { catch_up, overlap, ..terms() }).await.next.unwrap();
        house.to_tick(4).await;
        for _ in 0..6 {
            house.work().await;
        }
        let expected: Vec<String> = (5 - runs..5).map(|n| format!("act {}", run_at(first + MINUTE * 10 * n))).collect();
        assert_eq!(house.sent(), expected, "{catch_up:?}");
        let known = house.known().await;
        assert_eq!(known.next, Some(first + MINUTE * 50), "{catch_up:?}");
        assert_eq!(known.last.unwrap().missed_from, (runs == 1).then_some(first), "what was left out is said: {catch_up:?}");
    }
    let house = Town::default().process();
    let first = house.put(&Terms { catch_up: CatchUp::None, ..terms() }).await.next.unwrap();
    house.to_tick(4).await;
    house.town.clock.advance(MINUTE * 2);
    assert!(matches!(house.work().await[..], [Became::Skipped { .. }]));
    assert_eq!((house.sent().len(), house.known().await.next), (0, Some(first + MINUTE * 50)));
}

#[tokio::test]
async fn a_tick_while_the_run_before_goes_on() {
    for overlap in Overlap::ALL {
        let house = Town::default().process();
        let busy = CanonicalJson::parse(r#"{"do":"wait"}"#).unwrap();
        house.put(&Terms { overlap, input: busy, ..terms() }).await;
        house.to_tick(0).await;
        let dealt = house.runtime.tick_due().await.unwrap();
        let Became::Started { run } = &dealt[0].ticked.what else { panic!("{dealt:?}") };
        let (runtime, first) = (house.runtime.clone(), run.clone());
        let driving = tokio::spawn(async move { runtime.see_run_through(&tenant(), &first).await });
        house.world().begun.notified().await;
        house.to_tick(0).await;
        let second: Vec<Became> = house.runtime.tick_due().await.unwrap().into_iter().map(|one| one.ticked.what).collect();
        match overlap {
            Overlap::Skip => assert_eq!(second, [Became::Skipped { why: format!("the run {run} has not ended") }]),
            Overlap::Wait => assert_eq!(second, []),
            Overlap::Allow => assert!(matches!(second[..], [Became::Started { .. }])),
        }
        house.world().let_go.notify_one();
        driving.await.unwrap().unwrap();
        let third = house.runtime.tick_due().await.unwrap().len();
        assert_eq!(third, usize::from(overlap == Overlap::Wait), "{overlap:?}: what waited runs now");
    }
}

#[tokio::test]
async fn what_is_paused_does_not_happen_and_what_is_removed_is_gone() {
    let house = Town::default().process();
    house.put(&Terms { catch_up: CatchUp::All, overlap: Overlap::Wait, ..terms() }).await;
    let ada = Operator::new("ada", "holidays");
    let tell = async |word| house.runtime.tell_schedule(&tenant(), &name(), word, &ada).await;
    assert_eq!(tell(Word::Pause).await.unwrap().0, Heard::Now);
    assert_eq!(tell(Word::Pause).await.unwrap().0, Heard::Before);
    house.town.clock.advance(MINUTE * 60);
    assert!(house.work().await.is_empty());
    let resumed = tell(Word::Resume).await.unwrap().1;
    assert!(resumed.next.unwrap() > house.town.clock.now(), "the ticks of the pause do not come after it");
    let tick = resumed.next.unwrap();
    house.to_tick(0).await;
    assert_eq!(house.work().await.len(), 1);
    assert_eq!(tell(Word::Remove).await.unwrap().0, Heard::Now);
    assert_eq!(tell(Word::Remove).await.unwrap().0, Heard::Before);
    assert_eq!(tell(Word::Resume).await.unwrap_err().code(), "schedule_not_found");
    assert!(house.runtime.schedule(&tenant(), &name()).await.is_err() && house.runtime.schedules(&tenant()).await.unwrap().is_empty());
    house.town.clock.advance(MINUTE * 60);
    assert!(house.work().await.is_empty());
    // Made anew with a clock that was put back: the tick that ran has its run.
    let again = Town { clock: Arc::default(), ..house.town.clone() }.process();
    again.put(&terms()).await;
    let early = again.known().await.next.unwrap();
    assert!(early <= tick);
    again.town.clock.advance(tick.since(again.town.clock.now()) + Duration::from_millis(1));
    again.work().await;
    assert_eq!(again.sent(), [format!("act {}", run_at(tick))]);
}

#[tokio::test]
async fn what_could_never_run_is_refused_and_changes_nothing() {
    let house = Town::default().process();
    assert_eq!(house.refused(terms()).await.code(), "unknown_workflow");
    house.runtime.put_workflow(&tenant(), &Arc::new(workflow(REPORT)), "ada").await.unwrap();
    for (terms, code, says) in [
        (Terms { cron: "* * *".into(), ..terms() }, "invalid_schedule", "has 3 fields"),
        (Terms { zone: "Mars/Olympus".into(), ..terms() }, "invalid_schedule", "`zone` \"Mars/Olympus\""),
        (Terms { cron: "0 0 31 2 *".into(), ..terms() }, "invalid_schedule", "never comes"),
        (Terms { catch_up: CatchUp::All, ..terms() }, "invalid_schedule", "`overlap`"),
        (Terms { input: CanonicalJson::parse("{}").unwrap(), ..terms() }, "invalid_input", "do"),
        (Terms { input: CanonicalJson::parse(r#"{"do":"${input.x}"}"#).unwrap(), ..terms() }, "invalid_schedule", "schedule.tick"),
        (Terms { input: CanonicalJson::parse(r#"{"do":"${schedule.}"}"#).unwrap(), ..terms() }, "invalid_schedule", "`input`"),
    ] {
        let refused = house.refused(terms).await;
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.to_string().contains(says), "{refused}");
    }
    assert!(house.runtime.schedules(&tenant()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_tick_that_cannot_start_its_run_is_told_and_the_next_one_runs() {
    let house = Town::default().process();
    house.put(&terms()).await;
    let stricter = REPORT.replace("required: [do]", "required: [do, who]");
    house.runtime.put_workflow(&tenant(), &Arc::new(workflow(&stricter)), "bob").await.unwrap();
    house.to_tick(0).await;
    let Became::Refused { code, message } = &house.work().await[0] else { panic!("it started") };
    assert!(code == "invalid_input" && message.contains("who"), "{message}");
    house.runtime.put_workflow(&tenant(), &Arc::new(workflow(REPORT)), "bob").await.unwrap();
    house.to_tick(0).await;
    assert!(matches!(house.work().await[..], [Became::Started { .. }]));
    assert_eq!(house.sent().len(), 1);
}

/// A worker dies before or after any append; others go on. Each tick has its one run, and no tick is lost.
#[test]
fn a_worker_may_die_at_every_append_of_a_tick() {
    let mut deaths = 0;
    for number in 1..=8 {
        for death in [Death::Before(number), Death::After(number)] {
            let town = Town::default();
            let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio.block_on(async {
                let steady = town.process();
                let tick = steady.put(&terms()).await.next.unwrap();
                steady.to_tick(0).await;
                let (mortal_house, mortal) = town.process_that_dies(death);
                let worked = async {
                    mortal_house.runtime.tick_due().await?;
                    mortal_house.runtime.drive_due().await
                };
                tokio::select! {
                    _ = worked => {}
                    () = mortal.death() => {}
                }
                deaths += u32::from(mortal.is_dead());
                // What the dead process held is over by then, and the next tick is not yet there.
                town.clock.advance(Duration::from_secs(120));
                for _ in 0..4 {
                    steady.work().await;
                    steady.runtime.recover().await.unwrap();
                }
                assert_eq!(steady.sent(), [format!("act {}", run_at(tick))], "{death:?}");
                let known = steady.known().await;
                assert_eq!((known.runs, known.next), (1, Some(tick + MINUTE * 10)), "{death:?}");
                assert_eq!(steady.view(&run_at(tick)).await.state, "completed", "{death:?}");
            });
        }
    }
    assert!(deaths >= 6, "only {deaths} processes died");
}
