------------------------------- MODULE Calls --------------------------------
\* Workers: look, claim, dispatch, hear, report, answer; and the ladder of a doubt. (drive.rs, execute.rs, ledger.rs, conclude.rs)
\*
\* Reading and then appending is one step where only the append matters: had anything come between, it would conflict, and be made anew. Where the
\* time between matters (a claim after a look, a probe's word after the asking), it is two.
EXTENDS Store

Callable(k) == k = K \/ disk.eff[K].st = "undoing"
CallArgs(k) == IF k = K THEN Args ELSE {"a"}

\* decide: Execute. A doubt only where the tool may be repeated.
MayClaim(e, a) == /\ \/ e.st \in {"absent", "flushed", "ready", "retrying"}
                     \/ e.st = "in_doubt" /\ Guard("only the repeatable are repeated", Repeatable)
                  /\ e.args \in {"-", a}

Look(w, k, a) ==
  /\ wk[w].pc = "idle" /\ Callable(k) /\ claims[k] < MaxClaims
  /\ MayClaim(disk.eff[k], a)
  /\ wk' = [wk EXCEPT ![w] = [Idle EXCEPT !.pc = "looked", !.k = k, !.args = a, !.fresh = TRUE]]
  /\ UNCHANGED <<ledger, cl, world, tool, told, answered, counts, ghosts>>

\* [opened,] claimed. It is a guess to claim what is known to have happened in this life.
Claim(w) ==
  LET k == wk[w].k
      e == mem.eff[k]
      opened == IF e.st \in {"absent", "flushed"} THEN After(e, Opened(wk[w].args)) ELSE e
      x == Claimed(e.fence + 1, w)
      n == claims[k] + 1
  IN  /\ wk[w].pc = "looked" /\ Committed(k) /\ n <= MaxClaims
      /\ Guard("compare and append", wk[w].fresh /\ Legal(opened, x))
      /\ mem' = Put(k, After(opened, x), {})
      /\ claims' = [claims EXCEPT ![k] = n]
      /\ wk' = [wk EXCEPT ![w] = [@ EXCEPT !.pc = "claiming", !.f = x.fence, !.n = n, !.life = e.life, !.fresh = FALSE]]
      /\ guessed' = (guessed \/ \E r \in disk.rcpt[k] : r.word = "done" /\ r.life = e.life)
      /\ UNCHANGED <<disk, cl, world, tool, told, answered, counts, lied, words>>

\* The append has returned: a permit exists only once its claim is durable.
Permit(w) ==
  /\ wk[w].pc = "claiming" /\ Guard("claim before dispatch", Committed(wk[w].k))
  /\ wk' = [wk EXCEPT ![w].pc = "permit"]
  /\ UNCHANGED <<ledger, cl, world, tool, told, answered, counts, ghosts>>

\* The store could not say whether the claim was written. Nothing was dispatched, and it is given back: this very claim, no other under its fence.
Release(w) ==
  LET k == wk[w].k IN
  /\ wk[w].pc = "releasing" /\ Committed(k)
  /\ IF mem.eff[k].st = "running" /\ mem.eff[k].fence = wk[w].f /\ Guard("the very claim", mem.eff[k].own = w)
     THEN Append(k, Released(wk[w].f))
     ELSE UNCHANGED ledger
  /\ wk' = [wk EXCEPT ![w] = Idle]
  /\ UNCHANGED <<cl, world, tool, told, answered, counts, ghosts>>

\* One period of the lease passes, as the clocks of holder and judge agree: `now` of the one is never ahead of `latest` of the other. (What comes
\* before the permit or after the answer is the same whether the lease passed then or here.)
Holding == {"claiming", "permit", "sent", "heard"}
LeasePasses(w) ==
  /\ wk[w].pc \in {"permit", "sent"} /\ wk[w].passed <= MaxExtends
  /\ wk' = [wk EXCEPT ![w].passed = @ + 1]
  /\ UNCHANGED <<ledger, cl, world, tool, told, answered, counts, ghosts>>
Holds(w) == wk[w].passed <= wk[w].ext

\* The heartbeat. The holder believes in more time only when that is durable.
Extend(w) ==
  /\ wk[w].pc \in {"permit", "sent"} /\ mem.eff[wk[w].k].ext < MaxExtends
  /\ Append(wk[w].k, Extended(wk[w].f))
  /\ wk' = IF Broken = "extension before belief" THEN [wk EXCEPT ![w].ext = @ + 1] ELSE wk
  /\ UNCHANGED <<cl, world, tool, told, answered, counts, ghosts>>
IsExtended(w) ==
  LET e == disk.eff[wk[w].k] IN
  /\ wk[w].pc \in {"permit", "sent"} /\ Committed(wk[w].k)
  /\ e.st = "running" /\ e.fence = wk[w].f /\ wk[w].ext < e.ext
  /\ wk' = [wk EXCEPT ![w].ext = e.ext]
  /\ UNCHANGED <<ledger, cl, world, tool, told, answered, counts, ghosts>>

\* The one place that touches the world. A guess: an attempt went out before, nobody in a position to know has said that it did not act, and the
\* tool may not be repeated.
Dispatch(w) ==
  LET k == wk[w].k
      life == wk[w].life
  IN  /\ wk[w].pc = "permit" /\ Guard("the permit still holds", Holds(w))
      /\ world' = [world EXCEPT ![k][wk[w].n] = [st |-> "flying", life |-> life, args |-> wk[w].args]]
      /\ wk' = [wk EXCEPT ![w].pc = "sent"]
      /\ guessed' = (guessed \/ (~Repeatable /\ Sent(k, life) \ words[k] # {}))
      /\ UNCHANGED <<ledger, cl, tool, told, answered, counts, lied, words, claims>>

\* A worker that was paused since its claim finds out here: not done, and may be tried again.
PermitLost(w) ==
  /\ wk[w].pc = "permit" /\ ~Holds(w)
  /\ wk' = [wk EXCEPT ![w].pc = "heard", ![w].out = "retry"]
  /\ UNCHANGED <<ledger, cl, world, tool, told, answered, counts, ghosts>>

HearDone(w) ==
  /\ wk[w].pc = "sent" /\ world[wk[w].k][wk[w].n].st \in {"acted", "echoed"}
  /\ wk' = [wk EXCEPT ![w].pc = "heard", ![w].out = "done", ![w].val = ResultOf(wk[w].k, wk[w].n)]
  /\ UNCHANGED <<ledger, cl, world, tool, told, answered, counts, ghosts>>

\* A definite no, for good or for now.
HearNo(w) ==
  /\ wk[w].pc = "sent" /\ world[wk[w].k][wk[w].n].st = "refused"
  /\ \E out \in {"failed", "retry"} : wk' = [wk EXCEPT ![w].pc = "heard", ![w].out = out]
  /\ words' = [words EXCEPT ![wk[w].k] = @ \cup {wk[w].n}]
  /\ UNCHANGED <<ledger, cl, world, tool, told, answered, counts, lied, guessed, claims>>

\* A timeout, a dropped connection, an error that says nothing. Whatever became of the request, or will.
HearNothing(w) ==
  /\ wk[w].pc = "sent"
  /\ wk' = [wk EXCEPT ![w].pc = "heard",
                      ![w].out = CASE Broken = "unknown is not to be retried" -> "retry" [] Broken = "unknown is not failed" -> "failed" [] OTHER -> "unknown"]
  /\ UNCHANGED <<ledger, cl, world, tool, told, answered, counts, ghosts>>

\* What an effect's state answers, to whom.
Answers(k, e, a) == IF e.st \in {"done", "cancelled"}
                    THEN {[k |-> k, life |-> e.life, args |-> a, word |-> e.st, val |-> IF e.st = "done" THEN e.val ELSE 0]} ELSE {}

\* finished, or late: what an attempt says is recorded once. Who has nothing new to say is done.
Report(w) ==
  LET k == wk[w].k
      e == mem.eff[k]
      finished == Finished(wk[w].f, wk[w].out, wk[w].val)
      late == Late(wk[w].f, wk[w].out, wk[w].val)
      write(x) == Append(k, x) /\ wk' = [wk EXCEPT ![w].pc = "reporting", ![w].ans = Answers(k, After(e, x), wk[w].args)]
  IN  /\ wk[w].pc = "heard" /\ Committed(k)
      /\ CASE Legal(e, finished)                             -> write(finished)
           [] ~Legal(e, finished) /\ wk[w].out # "unknown" /\ Legal(e, late) -> write(late)
           [] OTHER                                          -> UNCHANGED ledger /\ wk' = [wk EXCEPT ![w] = Idle]
      /\ UNCHANGED <<cl, world, tool, told, answered, counts, ghosts>>

\* The append has returned: the caller is told what it led to, if that is an end. What a retry or a doubt needs is a call of its own.
Tell(w) ==
  /\ wk[w].pc = "reporting" /\ Guard("outcome before answer", Committed(wk[w].k))
  /\ told' = told \cup wk[w].ans
  /\ wk' = [wk EXCEPT ![w] = Idle]
  /\ UNCHANGED <<ledger, cl, world, tool, answered, counts, ghosts>>

\* decide: Replay. The world is not touched.
Replay(k, a) ==
  LET e == IF Broken = "reads are durable" THEN mem.eff[k] ELSE disk.eff[k] IN
  /\ Guard("same arguments", e.args = a)
  /\ told' = told \cup Answers(k, e, a) /\ told' # told
  /\ UNCHANGED <<ledger, wk, cl, world, tool, answered, counts, ghosts>>

\* The process ends; its request goes on.
Die(w) ==
  /\ faults < MaxFaults /\ wk[w].pc \notin {"idle", "looked"}
  /\ faults' = faults + 1
  /\ wk' = [wk EXCEPT ![w] = Idle]
  /\ UNCHANGED <<ledger, cl, world, tool, told, answered, acts, ghosts>>

-----------------------------------------------------------------------------
\* Doubt, and its ladder.

\* The holder of the running claim is dead, or its lease is over.
LeaseOver(k) == \A w \in Workers : wk[w].pc \in Holding /\ wk[w].k = k /\ wk[w].f = mem.eff[k].fence => wk[w].passed > mem.eff[k].ext

LoseLease(k) ==
  /\ mem.eff[k].st = "running" /\ Guard("a lease is waited out", LeaseOver(k))
  /\ Append(k, Lost(mem.eff[k].fence))
  /\ UNCHANGED <<wk, cl, world, tool, told, answered, counts, ghosts>>

\* What may still act has had its time (settle_after): no request is on its way; and where the lease was not waited out, because the effect was
\* cancelled, nobody may still send one.
Settled(k, e) == /\ Flying(k, e.life) = {}
                 /\ e.st = "cancelled" => \A w \in Workers : wk[w].k = k /\ wk[w].pc \in {"claiming", "permit"} => ~Holds(w)

\* Someone says whether it happened in this life. What is not so, or is said too early to know, is a lie.
IsSo(k, life, word) == IF word = "happened" THEN Executed(k, life) # {} ELSE Executed(k, life) = {}
Says(k, life, word, true) ==
  /\ IF true THEN UNCHANGED lied ELSE Cardinality(lied) < MaxLies /\ lied' = lied \cup {<<k, life>>}
  /\ words' = IF word = "happened" THEN words ELSE [words EXCEPT ![k] = @ \cup Sent(k, life)]
ResultSeen(k, life, word) == IF word # "happened" THEN {0}
                             ELSE LET seen == {n \in Attempts : world[k][n].st = "acted" /\ (Broken = "a flush renews the key" \/ world[k][n].life = life)}
                                  IN IF seen = {} THEN {Said} ELSE seen

\* The world is asked once it has had its time. What it says is recorded only if nothing else was meanwhile.
Probe(w, k) ==
  LET e == disk.eff[k]
      life == e.life
  IN  /\ wk[w].pc = "idle" /\ HasProbe
      /\ Legal(e, Probed("did_not_happen", 0))
      /\ Guard("a probe waits", e.st = "cancelled" \/ Settled(k, e))
      /\ Guard("a probe waits, also for the cancelled", e.st # "cancelled" \/ Settled(k, e))
      /\ \E word \in {"happened", "did_not_happen"} :
           /\ Says(k, life, word, IsSo(k, life, word))
           /\ \E v \in ResultSeen(k, life, word) :
                wk' = [wk EXCEPT ![w] = [Idle EXCEPT !.pc = "probing", !.k = k, !.out = word, !.val = v, !.fresh = TRUE]]
      /\ UNCHANGED <<ledger, cl, world, tool, told, answered, counts, guessed, claims>>

\* Only in a broken ledger: trouble with the asking is taken for a no. (Where it is not, nothing changes: the doubt stays.)
ProbeCannotTell(w, k) ==
  /\ Broken = "cannot tell is no answer"
  /\ wk[w].pc = "idle" /\ HasProbe /\ disk.eff[k].st = "in_doubt"
  /\ wk' = [wk EXCEPT ![w] = [Idle EXCEPT !.pc = "probing", !.k = k, !.out = "did_not_happen", !.fresh = TRUE]]
  /\ UNCHANGED <<ledger, cl, world, tool, told, answered, counts, ghosts>>

RecordProbe(w) ==
  /\ wk[w].pc = "probing" /\ Guard("a probe is compared", wk[w].fresh)
  /\ Append(wk[w].k, Probed(wk[w].out, wk[w].val))
  /\ wk' = [wk EXCEPT ![w] = Idle]
  /\ UNCHANGED <<cl, world, tool, told, answered, counts, ghosts>>

\* An undo ended: recorded on the effect that it undoes.
FinishUndo ==
  /\ WithUndo /\ mem.eff[K].st = "undoing"
  /\ \/ Guard("an undo is awaited", disk.eff[U].st = "done") /\ Append(K, UndoFinished(FALSE))
     \/ disk.eff[U].st = "failed" /\ Append(K, UndoFinished(TRUE))
  /\ UNCHANGED <<wk, cl, world, tool, told, answered, counts, ghosts>>
=============================================================================
