# Habits. `just` lists them.

default:
    @just --list

# Every check. CI runs ./test (.ci/run).
check: fmt lint test deny

fmt:
    cargo fmt --all --check

lint:
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Installs what the tests need and runs all of them.
test *args:
    ./test {{args}}

# Holds a running server against /openapi.json.
schemathesis:
    scripts/schemathesis

# Has TLC check the formal model: it holds, it moves, and each of its guards is needed.
spec *args:
    spec/check {{args}}

# Replays the seeds of every fuzz target and runs each for FUZZ_SECONDS (10).
fuzz *args:
    fuzz/check {{args}}

# Licences, advisories, bans, sources. Needs cargo-deny.
deny:
    cargo deny --locked check

# A payment that is made once although the process was killed in the middle.
demo:
    cargo run -p counterfoil -- demo

# Durable effects per second on this disk, beside the raw limit.
bench concurrency="1,64,1024" seconds="3":
    cargo run --release -p counterfoil -- bench --concurrency {{concurrency}} --seconds {{seconds}}
