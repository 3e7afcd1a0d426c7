//! A process that dies at any append, before or after it is written: whoever takes over ends the run as it would have ended, and the world is as it should be.

use std::time::Duration;

use crate::house::{Death, Town, new_run, tenant, workflow};

const TRIP: &str = r#"
workflow: trip
steps:
  - { id: flight, tool: book_flight, args: { who: ada }, undo: { tool: cancel_flight, args: { booking: "${result.id}" } } }
  - id: rooms
    parallel:
      branches:
        - [{ id: hotel, tool: book_hotel, args: { nights: 3 }, undo: { tool: cancel_hotel, args: { booking: "${result.id}" } } }]
        - [{ id: note, tool: act, args: { what: note } }]
  - id: check
    decision: [{ when: "steps.hotel.result.price > 500", then: [boss] }, { else: [pay] }]
  - { id: boss, needs: [check], wait: { approval: "really?" } }
  - { id: pay, needs: [check, boss], tool: charge, args: { do: "${input.pay}" } }
output: "${steps.pay.result.id}"
"#;

/// Lives one process after the other until the run has ended; the n-th dies as `deaths` says, those after that do not.
fn live(deaths: &[Death], pay: &str) -> (Town, &'static str, bool) {
    let town = Town::default();
    let workflow = std::sync::Arc::new(workflow(TRIP));
    let mut died = false;
    for life in 0..deaths.len() + 3 {
        let death = deaths.get(life).copied().unwrap_or(Death::Never);
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let state = tokio.block_on(async {
            let (house, mortal) = town.process_that_dies(death);
            let input = format!(r#"{{"pay":"{pay}"}}"#);
            let lived = async {
                house.runtime.start_run(new_run(&workflow, &input, "r")).await?;
                house.runtime.see_run_through(&tenant(), &"r".parse().unwrap()).await
            };
            let ended = tokio::select! {
                ended = lived => ended.is_ok(),
                () = mortal.death() => false,
                () = tokio::time::sleep(Duration::from_secs(20)) => {
                    let entries = house.runtime.run_entries(&tenant(), &"r".parse().unwrap(), None).await.unwrap();
                    let entries: Vec<String> = entries.iter().map(|entry| entry["entry"].to_string()).collect();
                    panic!("a run that hangs: {pay}, {deaths:?}, life {life}: {:?}\n{}", town.world.log(), entries.join("\n"))
                }
            };
            died |= mortal.is_dead();
            if ended && !mortal.is_dead() { Some(house.view(&"r".parse().unwrap()).await.state) } else { None }
        });
        // What the dead process held is over by then.
        drop(tokio);
        town.clock.advance(Duration::from_secs(120));
        if let Some(state) = state {
            return (town, state, died);
        }
    }
    panic!("no life ended the run: {deaths:?}");
}

fn check(deaths: &[Death], pay: &str) -> bool {
    let (town, state, died) = live(deaths, pay);
    let count = |tool: &str| town.world.count(tool);
    let counts = ["book_flight", "book_hotel", "act", "charge", "cancel_hotel", "cancel_flight"].map(count);
    match pay {
        "no" => assert_eq!((state, counts), ("compensated", [1, 1, 1, 0, 1, 1]), "{deaths:?}: {:?}", town.world.log()),
        _ => assert_eq!((state, counts), ("completed", [1, 1, 1, 1, 0, 0]), "{deaths:?}: {:?}", town.world.log()),
    }
    if pay == "no" {
        let log = town.world.log();
        let at = |tool: &str| log.iter().position(|line| line == tool).unwrap();
        assert!(at("cancel_hotel") < at("cancel_flight"), "{deaths:?}: {log:?}");
    }
    died
}

#[test]
fn death_at_every_append_of_the_trip_is_survived() {
    for pay in ["ok", "no", "lose", "flaky"] {
        let mut appends = 0;
        for number in 1.. {
            let before = check(&[Death::Before(number)], pay);
            let after = check(&[Death::After(number)], pay);
            if !before && !after {
                break;
            }
            appends = number;
        }
        assert!(appends >= 8, "{pay}: only {appends} appends were tried");
    }
}

#[test]
fn two_deaths_are_survived_as_well() {
    for pay in ["ok", "no"] {
        for first in 1..12 {
            for second in 1..8 {
                check(&[Death::After(first), Death::Before(second)], pay);
                check(&[Death::Before(first), Death::After(second)], pay);
            }
        }
    }
}
