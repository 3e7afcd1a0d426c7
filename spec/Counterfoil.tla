---------------------------- MODULE Counterfoil -----------------------------
\* Workers that share a ledger, the world they act on, and the clients who are told of it: all that may happen, and what is promised of it.
\*
\* Time is not modelled but by what may happen at any moment: a lease runs out, a record's time is over, a worker dies, the store loses its power.
\* Power cuts, deaths, lies and claims are counted, and bounded by constants. What was told is never taken back (`told`, `answered`).
EXTENDS People

WorkerNext(w) == \/ Claim(w) \/ Permit(w) \/ Release(w) \/ LeasePasses(w) \/ Extend(w) \/ IsExtended(w) \/ Dispatch(w) \/ PermitLost(w)
                 \/ HearDone(w) \/ HearNo(w) \/ HearNothing(w) \/ Report(w) \/ Tell(w) \/ RecordProbe(w) \/ Die(w)
                 \/ \E k \in Keys : \/ Probe(w, k) \/ ProbeCannotTell(w, k)
                                    \/ \E a \in CallArgs(k) : Look(w, k, a)
KeyNext(k) == \/ Prune(k) \/ SealLater(k) \/ LoseLease(k)
              \/ \E n \in Attempts : Act(k, n) \/ Refuse(k, n)
              \/ \E a \in CallArgs(k) : Replay(k, a)
ClientNext(c) == Change(c) \/ RecordLater(c) \/ Changed(c) \/ StoreAnswer(c) \/ Stored(c) \/ HangUp(c) \/ \E t \in Tokens, op \in Ops : Ask(c, t, op)

Next == \/ Sync \/ PowerCut \/ FinishUndo
        \/ \E w \in Workers : WorkerNext(w)
        \/ \E k \in Keys : KeyNext(k)
        \/ \E op \in Ops : Operate(op)
        \/ \E c \in Clients : ClientNext(c)
        \/ \E t \in Tokens : PruneRequest(t)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
\* What is promised. Each holds whatever is not durable is lost, whoever dies, and however late a report comes.

Honest(k, life) == <<k, life>> \notin lied

\* Same call, same answer: one key in one life has one result, told only to those who asked for just that, and is not done for one and cancelled for
\* another. One token has one answer, told only to those who sent just that.
IdempotencyGuarantee ==
  /\ \A x, y \in told : x.k = y.k /\ x.life = y.life => x.word = y.word /\ x.val = y.val
  /\ \A x \in told : x.word = "done" /\ x.val # Said => x.args = world[x.k][x.val].args
  /\ \A x, y \in answered : x.t = y.t => x = y

\* Counted in the world: in one life, at most one execution, if the tool is not declared safe to repeat and no probe and no person said what is
\* false; and whoever was told "done" was told of one that there was.
ExactlyOnceExecution ==
  \A k \in Keys, life \in Lives : Honest(k, life) =>
    /\ Repeat # "safe" => Cardinality(Executed(k, life)) <= 1
    /\ \A x \in told : x.k = k /\ x.life = life /\ x.word = "done" => x.val \in Executed(k, life)

\* What was told stands, until it expires or the key is freed.
StandsIn(e, x) == \/ e.st = "expired"
                  \/ e.life > x.life
                  \/ /\ e.life = x.life
                     /\ IF x.word = "done" THEN e.st \in {"done", "undoing", "undone", "undo_failed"} /\ e.val = x.val
                        ELSE e.st \in {"cancelled", "undoing", "undone", "undo_failed"}
AnswerStandsIn(r, x) == r.st = "expired" \/ (r.st = "answered" /\ r.op = x.op /\ r.ans = x.ans)

ReadAfterWriteConsistency == /\ \A x \in told : StandsIn(mem.eff[x.k], x)
                             /\ \A x \in answered : AnswerStandsIn(mem.req[x.t], x)
DurableOnSuccess          == /\ \A x \in told : StandsIn(disk.eff[x.k], x)
                             /\ \A x \in answered : AnswerStandsIn(disk.req[x.t], x)

\* On disk, at every moment: no end without its receipt, no change without the record of the request that made it, no record without its change, and
\* no request that changed something twice.
AtomicOperation ==
  /\ \A t \in Tokens : disk.applied[t] = IF disk.req[t].st = "absent" THEN 0 ELSE 1
  /\ \A k \in Keys : LET e == disk.eff[k]
                         has(word, v) == [life |-> e.life, word |-> word, val |-> v] \in disk.rcpt[k]
                     IN  /\ e.st \in {"done", "undoing", "undone", "undo_failed"} => has("done", e.val)
                         /\ e.st \in {"failed", "cancelled"} => has(e.st, 0)
                         /\ e.st = "cancelled" /\ e.val # 0 => has("done", e.val)
                         /\ e.st = "undone" => has("undone", 0)

\* What a receipt says is so in the world: "done" was done, "failed" was not and will not be, "undone" was done and its undo too, once.
ReceiptMatchesEffect ==
  \A k \in Keys : LET e == mem.eff[k] IN
    /\ \A r \in mem.rcpt[k] : r.word = "done" /\ Honest(k, r.life) => r.val \in Executed(k, r.life)
    /\ e.st = "failed" /\ Honest(k, e.life) => Executed(k, e.life) \cup Flying(k, e.life) = {}
    /\ e.st = "undone" /\ Honest(U, 0) => Executed(U, 0) # {}
    /\ e.st = "undo_failed" /\ Honest(U, 0) => Executed(U, 0) = {}

\* Nothing was dispatched on a guess: neither after an attempt of which nobody knows, nor after one that is known to have acted.
NoGuess == ~guessed

\* Beyond the names that were asked for. Whatever was done, or may yet be, the ledger says so: by a receipt, or by being open.
HonestDoubt ==
  \A k \in Keys, life \in Lives : Honest(k, life) /\ Executed(k, life) \cup Flying(k, life) # {} =>
    \A s \in {mem, disk} :
      LET e == s.eff[k] IN
      \/ \E r \in s.rcpt[k] : r.life = life /\ r.word = "done"
      \/ e.life = life /\ (e.st \in {"running", "in_doubt"} \/ (e.st = "cancelled" /\ Doubtful(e)))

\* At most one worker could dispatch.
OneAtATime == \A k \in Keys : Cardinality({w \in Workers : wk[w].pc = "permit" /\ wk[w].k = k /\ Holds(w)}) <= 1

TypeOK ==
  /\ \A s \in {mem, disk} :
       /\ \A k \in Keys : /\ s.eff[k].st \in States /\ s.eff[k].args \in Args \cup {"-", "a"} /\ s.eff[k].own \in Workers \cup {"-"}
                          /\ s.eff[k].fence \in 0..MaxClaims /\ s.eff[k].silent \subseteq Attempts /\ s.eff[k].past \subseteq Attempts
                          /\ s.eff[k].dis \in 0..MaxClaims /\ s.eff[k].val \in 0..Said /\ s.eff[k].life \in Lives /\ s.eff[k].ext \in 0..MaxExtends
                          /\ s.eff[k].before \in Claimable \cup {"-", "failed"}
                          /\ (s.eff[k].st = "running") = (s.eff[k].own # "-") /\ (s.eff[k].st = "running") = (s.eff[k].before # "-")
       /\ \A t \in Tokens : s.req[t].st \in {"absent", "pending", "answered", "expired"} /\ s.applied[t] \in Nat
  /\ \A w \in Workers : /\ wk[w].pc \in {"idle", "looked", "claiming", "permit", "sent", "heard", "reporting", "releasing", "probing"}
                        /\ wk[w].out \in {"-", "done", "failed", "retry", "unknown", "happened", "did_not_happen"}
                        /\ wk[w].val \in 0..Said /\ wk[w].n \in 0..MaxClaims /\ wk[w].life \in Lives /\ Cardinality(wk[w].ans) <= 1
  /\ \A c \in Clients : cl[c].pc \in {"idle", "looked", "asked", "working", "storing"}
  /\ \A k \in Keys : /\ words[k] \subseteq Attempts /\ claims[k] \in 0..MaxClaims
                     /\ \A n \in Attempts : world[k][n].st \in {"none", "flying", "acted", "echoed", "refused"}
  /\ faults \in 0..MaxFaults /\ acts \in 0..MaxActs /\ guessed \in BOOLEAN /\ Cardinality(lied) <= MaxLies
=============================================================================
