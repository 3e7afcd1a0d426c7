//! Rust functions as runs: run again from their beginning, given what is recorded, and nothing is done twice.

use std::time::Duration;

use counterfoil_core::{Caller, RunId};
use counterfoil_runtime::engine::durable::{Context, Failed};
use counterfoil_runtime::engine::operate::{Cancelling, Signal};
use serde_json::{Value, json};

use crate::house::{Death, House, Town, tenant};

fn run() -> RunId {
    "r".parse().unwrap()
}

async fn start(house: &House, input: Value) {
    house.runtime.start_function(&tenant(), &Caller::new("test").unwrap(), &run(), "trip", &input).await.unwrap();
}

async fn trip(ctx: Context, input: Value) -> Result<Value, Failed> {
    let flight = ctx.call("book_flight", json!({ "who": input["who"] })).undo("cancel_flight", |r| json!({ "what": r["id"] })).await?;
    let (hotel, note) = tokio::join!(
        ctx.call("book_hotel", json!({ "nights": 3 })).undo("cancel_hotel", |r| json!({ "what": r["id"] })).into_future(),
        ctx.call("act", json!({ "what": "note" })).into_future()
    );
    hotel?;
    note?;
    let pay = ctx.call("charge", json!({ "do": input["pay"], "for": flight["id"] })).await?;
    Ok(json!({ "charge": pay["id"] }))
}

fn with_trip(house: &House) {
    house.runtime.register_function("trip", trip).unwrap();
}

#[tokio::test]
async fn a_function_ends_once_whoever_runs_it_again() {
    let town = Town::default();
    let house = town.process();
    with_trip(&house);
    start(&house, json!({ "who": "ada", "pay": "ok" })).await;
    let view = house.see(&run()).await;
    assert_eq!(view.state, "completed", "{view:?}");
    assert_eq!(["book_flight", "book_hotel", "act", "charge"].map(|tool| house.world().count(tool)), [1; 4]);
    let other = town.process();
    with_trip(&other);
    start(&other, json!({ "who": "ada", "pay": "ok" })).await;
    assert_eq!(other.see(&run()).await.output.unwrap().to_string(), view.output.unwrap().to_string());
    assert_eq!(house.world().log().len(), 4);
}

#[tokio::test]
async fn a_function_that_fails_is_undone_newest_first() {
    let house = Town::default().process();
    with_trip(&house);
    start(&house, json!({ "who": "ada", "pay": "no" })).await;
    let view = house.see(&run()).await;
    assert_eq!((view.state, view.error.as_ref().unwrap().code.as_str()), ("compensated", "no"), "{view:?}");
    let log = house.world().log();
    assert_eq!(log[log.len() - 2..].iter().map(|l| l.split(' ').next().unwrap()).collect::<Vec<_>>(), ["cancel_hotel", "cancel_flight"]);
}

#[test]
fn death_at_every_append_of_a_function_is_survived() {
    for pay in ["ok", "no", "lose"] {
        for number in 1.. {
            let mut died = false;
            for death in [Death::Before(number), Death::After(number)] {
                died |= survive(death, pay);
            }
            if !died {
                assert!(number > 8, "{pay}: only {number} appends were tried");
                break;
            }
        }
    }
}

/// One process that dies, and one that ends the run.
fn survive(death: Death, pay: &str) -> bool {
    let town = Town::default();
    let mut died = false;
    for (life, death) in [death, Death::Never].into_iter().enumerate() {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio.block_on(async {
            let (house, mortal) = town.process_that_dies(death);
            with_trip(&house);
            let lived = async {
                let input = json!({ "who": "ada", "pay": pay });
                house.runtime.start_function(&tenant(), &Caller::new("test").unwrap(), &run(), "trip", &input).await?;
                house.runtime.see_run_through(&tenant(), &run()).await
            };
            tokio::select! {
                ended = lived => assert!(ended.is_ok() || mortal.is_dead(), "{pay} {death:?} life {life}: {ended:?}"),
                () = mortal.death() => {}
                () = tokio::time::sleep(Duration::from_secs(20)) => panic!("it hangs: {pay} {death:?} life {life}: {:?}", town.world.log()),
            }
            died |= mortal.is_dead();
            if life == 1 {
                let state = house.view(&run()).await.state;
                let counts =
                    ["book_flight", "book_hotel", "act", "charge", "cancel_hotel", "cancel_flight"].map(|tool| town.world.count(tool));
                match pay {
                    "no" => assert_eq!((state, counts), ("compensated", [1, 1, 1, 0, 1, 1]), "{death:?}"),
                    _ => assert_eq!((state, counts), ("completed", [1, 1, 1, 1, 0, 0]), "{death:?}"),
                }
            }
        });
        drop(tokio);
        town.clock.advance(Duration::from_secs(120));
    }
    died
}

#[tokio::test]
async fn a_function_that_asks_for_something_else_goes_no_further() {
    let town = Town::default();
    let first = town.process();
    first
        .runtime
        .register_function("trip", |ctx, _| async move {
            ctx.call("act", json!({ "what": "a" })).await?;
            ctx.sleep(Duration::from_secs(3600)).await?;
            ctx.call("act", json!({ "what": "b" })).await
        })
        .unwrap();
    start(&first, json!({})).await;
    first.runtime.drive_run(&tenant(), &run()).await.unwrap();
    town.clock.advance(Duration::from_secs(4000));
    let changed = town.process();
    changed
        .runtime
        .register_function("trip", |ctx, _| async move {
            ctx.call("act", json!({ "what": "other" })).await?;
            ctx.call("charge", json!({})).await
        })
        .unwrap();
    let error = changed.runtime.drive_run(&tenant(), &run()).await.unwrap_err();
    assert_eq!(error.code(), "function_diverged");
    let message = error.to_string();
    assert!(message.contains("at 1.call, expected the effect") && message.contains("asks for the effect"), "{message}");
    let shorter = town.process();
    shorter.runtime.register_function("trip", |ctx, _| async move { ctx.call("act", json!({ "what": "a" })).await }).unwrap();
    let error = shorter.runtime.drive_run(&tenant(), &run()).await.unwrap_err();
    assert!(error.to_string().contains("expected 2.sleep, which is recorded, and the function ended without it"), "{error}");
    assert_eq!(town.world.log(), ["act a"], "nothing was done for them");
    let again = town.process();
    again
        .runtime
        .register_function("trip", |ctx, _| async move {
            ctx.call("act", json!({ "what": "a" })).await?;
            ctx.sleep(Duration::from_secs(3600)).await?;
            ctx.call("act", json!({ "what": "b" })).await
        })
        .unwrap();
    town.clock.advance(Duration::from_secs(60));
    assert_eq!(again.see(&run()).await.state, "completed");
    assert_eq!(town.world.log(), ["act a", "act b"]);
}

#[tokio::test]
async fn time_chance_and_signals_are_recorded() {
    let town = Town::default();
    let function = |ctx: Context, _: Value| async move {
        let (now, chance) = (ctx.now().await?, ctx.random().await?);
        let told = ctx.signal("go").await?;
        ctx.call("act", json!({ "what": told })).await?;
        Ok(json!({ "now": now.0, "chance": chance }))
    };
    let first = town.process();
    first.runtime.register_function("trip", function).unwrap();
    start(&first, json!({})).await;
    first.runtime.drive_run(&tenant(), &run()).await.unwrap();
    let waiting = first.view(&run()).await;
    assert_eq!(waiting.state, "waiting");
    let drawn = waiting.steps[1].result.clone().unwrap();
    let second = town.process();
    second.runtime.register_function("trip", function).unwrap();
    let signal = Signal { id: "1".into(), name: "go".into(), correlation: None, payload: "\"now\"".parse_json(), by: "ada".into() };
    second.runtime.signal_run(&tenant(), &run(), signal).await.unwrap();
    let view = second.see(&run()).await;
    assert_eq!(view.output.unwrap().to_value()["chance"], drawn.to_value());
    assert_eq!(town.world.log(), ["act now"]);
}

trait ParseJson {
    fn parse_json(&self) -> counterfoil_core::Json;
}

impl ParseJson for str {
    fn parse_json(&self) -> counterfoil_core::Json {
        counterfoil_core::Json::parse(self).unwrap()
    }
}

#[tokio::test]
async fn a_scope_that_fails_is_undone_and_the_function_goes_another_way() {
    let house = Town::default().process();
    house
        .runtime
        .register_function("trip", |ctx, _| async move {
            let tried = ctx
                .scope("try", |ctx| async move {
                    ctx.call("act", json!({ "what": "a" })).undo("undo_act", |_| json!({ "what": "a" })).await?;
                    ctx.call("act", json!({ "do": "no" })).await
                })
                .await;
            match tried {
                Ok(done) => Ok(done),
                Err(_) => ctx.call("act", json!({ "what": "other way" })).await,
            }
        })
        .unwrap();
    start(&house, json!({})).await;
    let view = house.see(&run()).await;
    assert_eq!(
        (view.state, house.world().log()),
        ("completed", vec!["act a".into(), "undo_act a".into(), "act other way".to_owned()]),
        "{view:?}"
    );
}

#[tokio::test]
async fn a_cancelled_function_stops_and_is_undone_if_asked() {
    let house = Town::default().process();
    house
        .runtime
        .register_function("trip", |ctx, _| async move {
            ctx.call("act", json!({ "what": "a" })).undo("undo_act", |_| json!({ "what": "a" })).await?;
            ctx.call("act", json!({ "do": "stops" })).await?;
            ctx.call("act", json!({ "what": "never" })).await
        })
        .unwrap();
    start(&house, json!({})).await;
    let runtime = house.runtime.clone();
    let driving = tokio::spawn(async move { runtime.see_run_through(&tenant(), &run()).await });
    house.world().begun.notified().await;
    house.world().begun.notified().await;
    let cancel = Cancelling { step: None, undo: true, by: "ada".into(), why: "enough".into() };
    house.runtime.cancel_run(&tenant(), &run(), cancel).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), driving).await.expect("it ends").unwrap().unwrap();
    assert_eq!((house.view(&run()).await.state, house.world().log()), ("compensated", vec!["act a".to_owned(), "undo_act a".to_owned()]));
}
